"""Load on OpenAI-compatible servers: what a response is, and streams that go wrong."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from openai_server import DONE, OpenAiServer, Scripted, Write, delta, event, usage
from waiting import patience

from exporter.triton import event_stream
from exporter.triton.event_stream import MAX_EVENT_BYTES, EventStream
from loadtests.engine import senders
from loadtests.engine.http_messages import Generate, StreamedAnswer
from loadtests.errors import LoadError
from loadtests.execute import execute, prepared
from loadtests.result import Outcome
from loadtests.scenario import Scenario

PACE = 0.03
WORDS = ("Ich", " weiß", " es", " nicht", " 🙂")
CHAT = (
    delta(role="assistant", content=""),
    *(delta(content=word) for word in WORDS),
    delta(finish_reason="stop"),
    usage(9, 7),
    DONE,
)
BEGUN = Write(b"".join(CHAT[:3]))
TEXT = "größer 東京 😀 e\u0301"
PIECE = 1 << 16
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
)


def run(server, requests=3, *, protocol="openai-chat", timeout=5.0, **model):
    """Send some requests, one at a time."""
    scenario = Scenario.model_validate(
        {
            "target": {"protocol": protocol, "address": server.address},
            "models": [{"model": "chatty", "variants": 4, **model}],
            "profile": {
                "kind": "constant",
                "requests_per_second": 20,
                "duration_seconds": requests / 20,
            },
            "timeout_seconds": timeout,
        }
    )
    return execute(scenario, prepared(scenario))


def test_prompts_are_many_so_that_a_server_s_cache_does_not_hold_all_of_them() -> None:
    with OpenAiServer(lambda *_: Scripted([Write(b"".join(CHAT))])) as server:
        given = {"model": "chatty", "prompts": {"input_tokens": {"median": 40}}}
        scenario = Scenario(
            target={"protocol": "openai-chat", "address": server.address},
            models=[given],
            profile={"kind": "closed"},
        )
        (entry,) = prepared(scenario).entries
    assert len({body.data for body in entry.bodies}) == 1000


def scripted(*writes, **given):
    """A server whose first answer, which a run tries out, is a good one."""
    answers = iter([Scripted([Write(b"".join(CHAT))])])
    return OpenAiServer(lambda *_: next(answers, Scripted(writes, **given)))


def test_a_chat_has_as_many_responses_as_events_with_content() -> None:
    writes = [Write(CHAT[0]), *(Write(part, PACE) for part in CHAT[1:-1]), Write(DONE)]
    with OpenAiServer(lambda *_: Scripted(writes)) as server:
        result = run(server)
    requests = result.requests
    assert requests.count(Outcome.OK) == len(requests), result.errors
    assert (requests.responses == len(WORDS)).all()
    assert (requests.tokens == 7).all()
    # Neither the role alone, at once, nor the last words' reason and usage.
    assert (requests.first - requests.sent >= PACE).all()
    span = requests.done - requests.first
    assert (span >= (len(WORDS) - 1) * PACE - 0.005).all()
    np.testing.assert_allclose(requests.mean_gap, span / (7 - 1))
    assert (requests.longest_gap >= span / (len(WORDS) - 1)).all()
    assert result.between_responses.count == len(requests) * (len(WORDS) - 1)


def test_what_is_asked_for() -> None:
    with scripted(*map(Write, CHAT)) as server:
        run(
            server,
            prompts={"input_tokens": {"median": 5}, "output_tokens": {"median": 3}},
            parameters={"temperature": 0.5},
        )
    path, body = server.asked[-1]
    assert path == "/v1/chat/completions"
    ((role, text),) = [(m["role"], m["content"]) for m in body.pop("messages")]
    assert (role, len(text.split())) == ("user", 5)
    assert body == {
        "model": "chatty",
        "max_tokens": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
    }


def test_completions_are_text() -> None:
    words = [event({"choices": [{"index": 0, "text": word}]}) for word in WORDS]
    answer = Scripted([Write(b"".join((*words, usage(3, 5), DONE)))])
    with OpenAiServer(lambda *_: answer) as server:
        result = run(server, protocol="openai-completions")
    assert server.asked[-1][0] == "/v1/completions"
    assert isinstance(server.asked[-1][1]["prompt"], str)
    assert (result.requests.responses == len(WORDS)).all(), result.errors
    assert (result.requests.tokens == 5).all()


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "tool_calls"])
def test_reasoning_and_tool_calls_are_content(name) -> None:
    value = [{"index": 0}] if name == "tool_calls" else "hm"
    answer = Scripted([Write(delta(**{name: value})), Write(CHAT[1]), Write(DONE)])
    with OpenAiServer(lambda *_: answer) as server:
        result = run(server)
    assert (result.requests.responses == 2).all(), result.errors


def in_bytes(content):
    return [Write(content[place : place + 1]) for place in range(len(content))]


@pytest.mark.parametrize(
    "writes",
    [
        in_bytes(b"".join(CHAT)),
        [Write(b"".join(CHAT))],
        [Write(b"".join(CHAT).replace(b"\n", b"\r\n"))],
        in_bytes(b"".join(CHAT).replace(b"\n", b"\r\n")),
        [Write(b": ping\n\n" + b": ping\n\n".join(CHAT))],
        [Write(b"\xef\xbb\xbf\nretry: 3\nid: 1\n" + b"event: message\n".join(CHAT))],
        [Write(b"".join(part.replace(b', "', b',\ndata: "', 1) for part in CHAT))],
        [Write(b"".join(CHAT[:-1]) + b"data:[DONE]\n\n")],
    ],
    ids=[
        "bytes",
        "one",
        "crlf",
        "crlf in bytes",
        "comments",
        "fields",
        "lines",
        "bare",
    ],
)
def test_a_stream_may_be_cut_and_written_in_any_way(writes) -> None:
    with OpenAiServer(lambda *_: Scripted(writes)) as server:
        result = run(server)
    assert result.requests.count(Outcome.OK) == len(result.requests), result.errors
    assert (result.requests.responses == len(WORDS)).all()
    assert (result.requests.tokens == 7).all()


def test_a_stream_may_end_with_its_connection() -> None:
    answer = Scripted([Write(part) for part in CHAT], is_chunked=False)
    with OpenAiServer(lambda *_: answer) as server:
        result = run(server)
    assert result.requests.count(Outcome.OK) == len(result.requests), result.errors


@pytest.mark.parametrize(
    ("writes", "outcome", "told"),
    [
        ([BEGUN], Outcome.WRONG, "ended without [DONE]"),
        ([BEGUN, Write(None)], Outcome.ERROR, "connection lost"),
        ([BEGUN, Write(b"x", 30.0)], Outcome.TIMEOUT, None),
        ([Write(CHAT[0] + CHAT[-2] + DONE)], Outcome.WRONG, "without a response"),
        ([Write(event({"error": {"message": "too long"}}))], Outcome.ERROR, "too long"),
        ([BEGUN, Write(event({"error": "no memory"}))], Outcome.ERROR, "no memory"),
        ([BEGUN, Write(event({"error": {}}))], Outcome.ERROR, "error"),
        ([BEGUN, Write(b"data: {nonsense\n\n")], Outcome.WRONG, "cannot be read"),
        ([BEGUN, Write(b"data: [1]\n\n")], Outcome.WRONG, "not a JSON object"),
        ([BEGUN, Write(b"data: \xff\xfe\n\n")], Outcome.WRONG, "cannot be read"),
        ([Write(b"data: " + b"[" * 200_000 + b"\n\n")], Outcome.WRONG, "cannot be"),
        ([Write(event({"choices": 3}))], Outcome.WRONG, "not a list"),
        ([Write(event({"choices": [None, 3]})), Write(DONE)], Outcome.WRONG, "without"),
    ],
)
def test_a_broken_stream_is_told_as_what_it_is(writes, outcome, told) -> None:
    with scripted(*writes) as server:
        result = run(server, timeout=patience(0.5))
    assert result.requests.count(outcome) == len(result.requests), result.errors
    if told is not None:
        assert told in next(iter(result.errors)), result.errors


def test_an_event_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(event_stream, "MAX_EVENT_BYTES", 1 << 16)
    piece = b"data: " + b"x" * 5000 + b"\n"
    with scripted(*[Write(piece)] * 100) as server:
        result = run(server)
    assert result.requests.count(Outcome.WRONG) == len(result.requests)
    assert "larger than" in next(iter(result.errors))


def test_an_error_that_does_not_end_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(senders.Keeping.__init__, "__defaults__", (1 << 16, 1 << 20))
    with scripted(*[Write(b"x" * 5000)] * 100, status=500) as server:
        result = run(server)
    assert result.requests.count(Outcome.WRONG) == len(result.requests)
    assert "larger than 65536 B" in next(iter(result.errors))


@pytest.mark.parametrize(
    ("given", "outcome", "told"),
    [
        ({"status": 429}, Outcome.ERROR, "HTTP 429: slow down"),
        ({"content_type": "text/html"}, Outcome.WRONG, "text/html"),
    ],
)
def test_an_answer_that_is_no_stream(given, outcome, told) -> None:
    with scripted(Write(b"slow down"), **given) as server:
        result = run(server)
    assert result.requests.count(outcome) == len(result.requests)
    assert told in next(iter(result.errors))


def test_a_model_that_is_not_served_is_told_before_the_run() -> None:
    with (
        OpenAiServer(lambda *_: Scripted([]), models=("other",)) as server,
        pytest.raises(LoadError, match="it serves other"),
    ):
        run(server)
    assert not server.asked


def test_a_server_without_a_list_of_models_is_asked() -> None:
    with OpenAiServer(
        lambda *_: Scripted([Write(b"".join(CHAT))]), models=()
    ) as server:
        result = run(server)
    assert result.requests.count(Outcome.OK) == len(result.requests)


@pytest.mark.parametrize("model", [{"data": "x.npz"}, {"batch": 4}])
def test_settings_of_tensors_are_refused(model) -> None:
    document = {
        "target": {"protocol": "openai-chat"},
        "models": [{"model": "chatty", **model}],
        "profile": {"kind": "closed"},
    }
    with pytest.raises(
        ValueError, match=f"found both {next(iter(model))} and protocol"
    ):
        Scenario.model_validate_json(json.dumps(document))


def generated(text):
    document = {"text_output": text, "num_output_tokens": 2}
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


CONTENT = generated(TEXT) + generated(TEXT[::-1])


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_events_are_whole_wherever_they_are_cut(newline):
    content = CONTENT.replace(b"\n", newline)
    for cut in range(len(content) + 1):
        stream = EventStream()
        found = stream.feed(content[:cut]) + stream.feed(content[cut:])
        texts = [json.loads(data)["text_output"] for data in found]
        assert texts == [TEXT, TEXT[::-1]], cut
        assert stream.held_bytes == 0


def test_an_answer_has_its_tokens_wherever_a_character_is_cut():
    for cut in range(len(CONTENT) + 1):
        answer, said = StreamedAnswer(Generate(["text_output"])), []
        for piece in (HEAD, CONTENT[:cut], CONTENT[cut:]):
            answer.feed(piece)
            said += answer.events()
        assert [(one.content, one.tokens) for one in said] == [(True, 2), (True, 4)]


def test_the_end_of_an_event_may_mix_both_ends_of_lines():
    assert EventStream().feed(b"data: [DONE]\r\n\n") == [b"[DONE]"]


def pieces(size):
    """A line of that size, in pieces as a socket gives them."""
    yield b"data: "
    for _ in range(size // PIECE):
        yield b"x" * PIECE


def test_a_line_of_10_mb_is_one_event_and_is_kept_once():
    stream, found = EventStream(), []
    size = 10 << 20
    tracemalloc.start()
    for piece in pieces(size):
        found += stream.feed(piece)
        assert stream.held_bytes <= size + 6
    found += stream.feed(b"\n\n")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(data) for data in found] == [size]
    # The line itself, its copy as bytes, and its data.
    assert peak < 5 * size


def test_of_a_line_without_end_no_more_is_kept_than_the_limit():
    stream, refused = EventStream(), 0
    for piece in pieces(8 * MAX_EVENT_BYTES):
        try:
            stream.feed(piece)
        except ValueError:
            refused += 1
        assert stream.held_bytes <= MAX_EVENT_BYTES + PIECE
    assert refused
