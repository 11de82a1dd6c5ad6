"""Streams of responses from a real Triton, and from one that lies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_triton import (
    INTERNAL,
    Body,
    Dropped,
    EmptyTensor,
    FakeModel,
    FakeTensor,
    FakeTriton,
    Hung,
)
from load_runs import send
from waiting import patience

from loadtests.engine.http_messages import Generate, judge_whole
from loadtests.plan import Body as PlanBody
from loadtests.plan import Mix
from loadtests.result import Outcome


def test_a_streamed_response_with_nan_is_wrong_over_http(
    loaded, target_of, mix_of
) -> None:
    """The server reads 1e39 as infinite, and infinite less infinite is NaN."""
    target = target_of(loaded, "http")
    (entry,) = mix_of(target, "stream", variants=1).entries
    bodies = tuple(
        PlanBody(b'{"values":[%s,2]}' % values) for values in (b"1,2", b"1e39,-1e39")
    )
    mix = Mix((replace(entry, bodies=bodies, style="stream"),))
    result = send(target, mix, 4, concurrency=1, timeout_seconds=patience(5))
    assert result.requests.outcome.tolist() == [1, 3] * 2, result.errors
    assert result.errors == {"output 'mean' holds NaN": 2}


@pytest.mark.parametrize(
    ("lie", "outcome", "told"),
    [
        (EmptyTensor(), Outcome.WRONG, "has 0 bytes"),
        (Body(b'{"outputs": 1}'), Outcome.WRONG, "not an inference response"),
        (INTERNAL, Outcome.ERROR, "the backend failed"),
        (Dropped(), Outcome.ERROR, ""),
        (Hung(), Outcome.TIMEOUT, None),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else None,
)
def test_no_lie_passes_for_a_streamed_answer(
    target_of, mix_of, lie, outcome, told
) -> None:
    # Of more bytes than a frame of HTTP/2 holds, four in each stream.
    tensors = (FakeTensor("x", "FP32", (9_000,)),)
    model = FakeModel("many", inputs=tensors, outputs=tensors, responses=4)
    with FakeTriton([model]) as fake:
        target = target_of(fake, "grpc")
        (entry,) = mix_of(target, "many").entries
        mix = Mix((replace(entry, style="stream"),))
        right = send(target, mix, 8, timeout_seconds=patience(5))
        fake.on("infer").reply(lie)
        # Only what hangs is to be given up on, on any machine.
        hangs = outcome is Outcome.TIMEOUT
        wrong = send(target, mix, 8, timeout_seconds=0.5 if hangs else patience(5))
    assert right.requests.count(Outcome.OK) == 8, right.errors
    assert right.between_responses.count == 8 * 3
    assert set(wrong.requests.outcome.tolist()) == {outcome}, wrong.errors
    if told is not None:
        assert any(told in message for message in wrong.errors)


@pytest.mark.parametrize(
    ("body", "judged"),
    [
        (b'{"text": "a", "num_output_tokens": 3}', (Outcome.OK, None, 3)),
        # Of two beams, or of a batch.
        (b'{"text": "a", "num_output_tokens": [2, 1]}', (Outcome.OK, None, 3)),
        (b'{"text": "a", "num_output_tokens": [2, null]}', (Outcome.OK, None, 0)),
        # Triton says so with status 200.
        (b'{"error": "expects 1 response"}', (Outcome.ERROR, "expects 1 response", 0)),
        (b'{"model_name": "llm"}', (Outcome.WRONG, "the answer has none", 0)),
        (b'["text"]', (Outcome.WRONG, "the answer cannot be read", 0)),
        (b"", (Outcome.WRONG, "the answer cannot be read", 0)),
    ],
)
def test_a_whole_answer_is_judged_by_its_content(body, judged):
    outcome, fault, tokens = judge_whole(Generate(["text"]), body)
    assert (outcome, tokens) == (judged[0], judged[2])
    assert (fault or "").startswith(judged[1] or "")
