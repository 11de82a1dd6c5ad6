"""The engine on a real Triton, and on one that lies."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_triton import (
    INTERNAL,
    QUEUE_FULL,
    Body,
    Dropped,
    EmptyTensor,
    FakeModel,
    FakeTensor,
    FakeTriton,
    Garbage,
    HalfAnswer,
    Hung,
    MissingOutput,
    ShortTensor,
    Slow,
    WrongDtype,
    WrongShape,
)
from load_runs import send
from waiting import patience, wait_until

from loadtests.engine import Options, run_closed, run_open
from loadtests.errors import PlanError
from loadtests.payloads.bodies import Row, body_of
from loadtests.payloads.metadata import takes_binary
from loadtests.plan import Mix
from loadtests.result import Outcome

PROTOCOLS = ("grpc", "http")
QUICK = Options(timeout_seconds=5.0)


def evenly(count: int, seconds: float) -> np.ndarray:
    return np.linspace(0.0, seconds, count)


# A real server.


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_open_loop_sends_each_request_once_and_none_early(
    loaded, target_of, mix_of, protocol
) -> None:
    target = target_of(loaded, protocol)
    arrivals = np.sort(np.random.default_rng(3).uniform(0.0, 1.0, 200))
    result = run_open(target, mix_of(target, "double"), arrivals, options=QUICK)
    requests = result.requests
    assert requests.count(Outcome.OK) == 200, result.errors
    assert np.array_equal(requests.intended, arrivals)
    assert (requests.sent >= requests.intended).all()
    assert (requests.done > requests.sent).all()
    assert result.from_intended.count == 200
    assert result.about.payload_sha256 == mix_of(target, "double").sha256


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_closed_loop_keeps_its_concurrency_and_ends_in_time(
    loaded, target_of, mix_of, protocol
) -> None:
    target = target_of(loaded, protocol)
    most = 0

    def note(progress) -> None:
        nonlocal most
        most = max(most, progress.in_flight)

    result = run_closed(
        target,
        mix_of(target, "double"),
        concurrency=8,
        duration_seconds=1.0,
        options=replace(QUICK, progress=note, progress_seconds=0.01),
    )
    assert result.requests.count(Outcome.OK) == len(result.requests) > 50
    assert most == 8
    assert result.requests.sent.max() < 2.0


def test_the_rate_of_a_closed_loop_is_that_of_the_time_in_which_it_sent(
    fake, target_of, mix_of
) -> None:
    target = target_of(fake, "grpc")
    mix = mix_of(target, "fake")
    fake.on("infer").reply(Hung(), times=1)
    options = replace(QUICK, timeout_seconds=2.0)
    result = run_closed(
        target, mix, concurrency=4, duration_seconds=1.0, options=options
    )
    assert result.requests.count(Outcome.TIMEOUT) == 1, result.errors
    assert result.duration_seconds >= 2.0
    assert result.sending_seconds == 1.0
    assert result.throughput == pytest.approx(result.requests.count(Outcome.OK), abs=4)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_mix_reaches_each_model_by_its_weight(
    loaded, target_of, mix_of, protocol
) -> None:
    target = target_of(loaded, protocol)
    first, second = mix_of(target, "double", "slow").entries
    mix = Mix((replace(first, weight=3.0), second))
    result = run_open(target, mix, evenly(80, 1.0), options=QUICK)
    assert result.requests.count(Outcome.OK) == 80, result.errors
    counts = np.bincount(result.requests.entry)
    assert counts[0] > counts[1] > 5


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sequences_start_go_on_and_end_and_leave_none_open(
    loaded, target_of, mix_of, protocol
) -> None:
    # `total` fails a request whose sequence was not started; its two instances hold one
    # sequence each, so that one left open would hold the next run up for 5 s.
    target = target_of(loaded, protocol)
    (entry,) = mix_of(target, "total").entries
    mix = Mix((replace(entry, sequence_length=5),))
    for _ in range(2):
        result = send(target, mix, 23)
        assert result.requests.count(Outcome.OK) == 23, result.errors
    assert result.from_send.max < 4.0


@pytest.mark.parametrize(
    ("protocol", "binary"),
    [("grpc", True), ("http", True), ("http", False)],
    ids=["grpc", "http", "json"],
)
def test_a_right_answer_is_taken_and_a_wrong_one_told(
    loaded, target_of, mix_of, protocol, binary
) -> None:
    target = target_of(loaded, protocol)
    assert takes_binary(target)
    (entry,) = mix_of(target, "double", variants=1).entries
    x = np.arange(8, dtype=np.float32)[np.newaxis]
    bodies = tuple(
        body_of(entry.spec, Row({"x": x}, {"y": wanted}), protocol, binary=binary)
        for wanted in (2 * x, 2 * x + 1e-7, 3 * x)
    )
    if not binary:
        assert json.loads(bodies[0].data)["inputs"][0]["data"] == x.ravel().tolist()
    mix = Mix((replace(entry, bodies=bodies, tolerance=1e-5),))
    result = send(target, mix, 9)
    assert result.requests.outcome.tolist() == [1, 1, 3] * 3
    assert result.errors == {"output 'y' is not the correct answer": 3}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("known", [None, 0.0, 1e-5])
def test_nan_is_wrong_unless_the_known_answer_has_it(
    loaded, target_of, mix_of, protocol, known
) -> None:
    """Also where an answer of the same frame was correct before."""
    target = target_of(loaded, protocol)
    (entry,) = mix_of(target, "double", variants=1).entries
    x = np.arange(8, dtype=np.float32)[np.newaxis]
    nan, inf = x.copy(), x.copy()
    nan[0, 5], inf[0, 5] = np.nan, np.inf
    rows = [(x, x), (nan, x), (inf, inf)]
    if known is not None:
        rows += [(nan, nan), (inf, x)]
    bodies = tuple(
        body_of(
            entry.spec,
            Row({"x": sent}, {} if known is None else {"y": 2 * right}),
            protocol,
        )
        for sent, right in rows
    )
    mix = Mix((replace(entry, bodies=bodies, tolerance=known or 0.0),))
    result = send(target, mix, 3 * len(bodies), concurrency=1)
    expected = [1, 3, 1] if known is None else [1, 3, 1, 1, 3]
    assert result.requests.outcome.tolist() == expected * 3, result.errors


class During:
    """Does things while a run runs: the run's own progress is the clock."""

    def __init__(self, begin_seconds: float, work) -> None:
        self._begin = begin_seconds
        self._thread = threading.Thread(target=work)
        self._began = False

    def __call__(self, progress) -> None:
        if progress.elapsed_seconds >= self._begin and not self._began:
            self._began = True
            self._thread.start()

    def join(self) -> None:
        assert self._began
        self._thread.join()


def test_a_server_that_freezes_is_seen_in_the_tail_and_not_smoothed(
    start_triton, target_of, mix_of
) -> None:
    """What is due while it is stopped waits for it, and the latency says how long."""
    server = start_triton(Path(__file__).parents[1] / "data" / "models")
    target = target_of(server, "grpc")
    stopped: list[float] = []

    def freeze() -> None:
        server.freeze()
        stopped.append(time.time())
        time.sleep(1.0)
        stopped.append(time.time())
        server.thaw()

    during = During(0.5, freeze)
    # So few that a busy machine answers them, and so patient that none is given up.
    patient = Options(
        timeout_seconds=patience(), progress=during, progress_seconds=0.05
    )
    result = run_open(
        target, mix_of(target, "double"), evenly(300, 6.0), options=patient
    )
    during.join()
    assert result.requests.count(Outcome.OK) == 300, result.errors
    began, ended = (instant - result.about.started_at for instant in stopped)
    due, done = result.requests.intended, result.requests.done
    meanwhile = (due > began + 0.1) & (due < ended - 0.1)
    assert meanwhile.sum() > 25
    assert (done[meanwhile] >= ended - 0.01).all()
    frozen = (ended - began) / 6.0
    late = result.from_intended.quantile(1.0 - frozen / 4)
    assert late > (ended - began) / 2


# A server that lies.


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("lie", "outcome", "told"),
    [
        (EmptyTensor(), Outcome.WRONG, "has 0 bytes"),
        (ShortTensor(), Outcome.WRONG, "bytes"),
        (WrongShape(), Outcome.WRONG, "shape"),
        (WrongDtype(), Outcome.WRONG, "declares FP32"),
        (MissingOutput("OUTPUT0"), Outcome.WRONG, "is missing"),
        (Body(b'{"outputs": 1}'), Outcome.WRONG, "not an inference response"),
        (INTERNAL, Outcome.ERROR, "the backend failed"),
        (QUEUE_FULL, Outcome.ERROR, "Exceeds maximum queue size"),
        (Dropped(), Outcome.ERROR, ""),
        (HalfAnswer(), Outcome.ERROR, ""),
        (Garbage(), (Outcome.ERROR, Outcome.WRONG), ""),
        (Hung(), Outcome.TIMEOUT, None),
        (Slow(2.0, phase="network"), Outcome.TIMEOUT, None),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else None,
)
def test_no_lie_passes_for_an_answer(
    fake, target_of, mix_of, protocol, lie, outcome, told
) -> None:
    """All of them: a server that says success and gives nothing is 100 % wrong."""
    target = target_of(fake, protocol)
    mix = mix_of(target, "fake")
    assert send(target, mix, 8).requests.count(Outcome.OK) == 8
    fake.on("infer").reply(lie)
    result = send(target, mix, 8, timeout_seconds=0.5)
    allowed = outcome if isinstance(outcome, tuple) else (outcome,)
    assert set(result.requests.outcome.tolist()) <= set(allowed), result.errors
    assert result.miss_ratio == 1.0
    assert result.throughput == 0.0
    if told is not None:
        assert any(told in message for message in result.errors)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_lie_after_many_right_answers_is_found(
    fake, target_of, mix_of, protocol
) -> None:
    """Also when the first answers were right, and their frame is known."""
    target = target_of(fake, protocol)
    mix = mix_of(target, "fake")
    fake.on("infer").reply(times=10)
    fake.on("infer").reply(EmptyTensor())
    result = send(target, mix, 20)
    assert result.requests.count(Outcome.OK) == 10
    assert result.requests.count(Outcome.WRONG) == 10


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_several_outputs_are_all_checked(target_of, mix_of, protocol) -> None:
    outputs = (FakeTensor("a", "FP32", (4,)), FakeTensor("b", "INT64", (2, 3)))
    with FakeTriton([FakeModel("two", outputs=outputs)]) as fake:
        target = target_of(fake, protocol)
        mix = mix_of(target, "two")
        assert send(target, mix, 12).requests.count(Outcome.OK) == 12
        fake.on("infer").reply(EmptyTensor("b"))
        result = send(target, mix, 12)
    assert result.requests.count(Outcome.WRONG) == 12


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_more_than_may_be_in_flight_are_rejected_and_are_misses(
    fake, target_of, mix_of, protocol
) -> None:
    target = target_of(fake, protocol)
    mix = mix_of(target, "fake")
    fake.on("infer").reply(Slow(0.5, phase="network"))
    result = run_open(target, mix, evenly(50, 0.2), in_flight=10, options=QUICK)
    assert fake.max_concurrent <= 10
    assert result.requests.count(Outcome.OK) == 10, result.errors
    assert result.requests.count(Outcome.REJECTED) == 40
    assert result.quantile(0.5) == np.inf
    assert result.verdict.valid


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_that_goes_and_comes_back_costs_what_was_sent_meanwhile(
    fake, target_of, mix_of, protocol
) -> None:
    target = target_of(fake, protocol)
    mix = mix_of(target, "fake")

    def interrupt() -> None:
        with fake.down():
            time.sleep(0.4)

    during = During(0.5, interrupt)
    result = run_open(
        target,
        mix,
        evenly(300, 3.0),
        options=replace(QUICK, progress=during, progress_seconds=0.05),
    )
    during.join()
    outcome = result.requests.outcome
    assert (outcome[:40] == Outcome.OK).all()
    assert (outcome[-40:] == Outcome.OK).all(), result.errors
    assert 10 <= np.count_nonzero(outcome == Outcome.ERROR) <= 200


def test_progress_tells_each_request_that_ended_once(fake, target_of, mix_of) -> None:
    target = target_of(fake, "grpc")
    told: list[int] = []
    result = run_open(
        target,
        mix_of(target, "fake"),
        evenly(100, 0.5),
        options=replace(
            QUICK, progress=lambda p: told.extend(p.finished), progress_seconds=0.02
        ),
    )
    assert sorted(told) == list(range(len(result.requests)))


def test_a_run_leaves_no_descriptor_behind(fake, target_of, mix_of) -> None:
    target = target_of(fake, "http")
    mix = mix_of(target, "fake")
    send(target, mix)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        send(target, mix)
    # The server of this test closes its ends a moment later.
    wait_until(
        lambda: len(list(Path("/proc/self/fd").iterdir())) <= before,
        "no more descriptors are open than before",
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"concurrency": -1}, "concurrency -1"),
        ({"concurrency": 10**6}, "concurrency 1000000"),
        ({"duration_seconds": 0}, "found 0 s"),
    ],
)
def test_a_closed_loop_out_of_range_is_refused(
    fake, target_of, mix_of, change, told
) -> None:
    target = target_of(fake, "http")
    given = {"concurrency": 1, "duration_seconds": 1.0, **change}
    with pytest.raises(PlanError, match=told):
        run_closed(target, mix_of(target, "fake"), **given)
