"""Streamed completions as a probe reads them: what is measured, and streams that go wrong."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from openai_server import DONE, OpenAiServer, Scripted, Write, delta, event, usage
from waiting import patience

from exporter import errors
from exporter.openai.openai_client import MAX_EVENT_BYTES, OpenAiClient
from exporter.own_requests.answer_checks import joined_outputs
from exporter.triton.http import HttpClient
from exporter.triton.protocol_types import InferRequest, Tokens

PACE = 0.05
ROLE, END = delta(role="assistant", content=""), delta(finish_reason="stop")
WORDS = (delta(content="Guten"), delta(content=" Tag 🙂"), delta(content="!"))
CHAT = (ROLE, *WORDS, END, usage(9, 4), DONE)


def client_of(server, api="chat"):
    return OpenAiClient(HttpClient(server.address), api, 8)


def request(model="chatty", **more):
    inputs = {"prompt": np.array(["hé".encode()], object), **more}
    return InferRequest(model, "", "tritonwatch-synthetic-x-1", inputs, {})


def asked(*writes, seconds=5.0, **given):
    """The reply to one request that is answered so."""
    with OpenAiServer(lambda *_: Scripted(writes, **given)) as server:
        client = client_of(server)
        try:
            return client.infer_stream(request(), timeout_seconds=seconds)
        finally:
            client.close()


def text_of(reply):
    client = OpenAiClient(HttpClient("127.0.0.1:1"), "chat", 8)
    spec = client.model_spec("chatty", "", timeout_seconds=1)
    return joined_outputs(spec, reply)["text"][0].decode()


def test_responses_are_chunks_with_content_and_their_times_are_measured():
    paced = [Write(part, PACE) for part in CHAT[1:-1]]
    reply = asked(Write(ROLE), *paced, Write(DONE))
    assert text_of(reply) == "Guten Tag 🙂!"
    assert reply.tokens == Tokens(9, 4)
    assert reply.responses == len(WORDS)
    # The role came at once, and the end and the usage after the last word.
    assert reply.first_response_seconds >= PACE
    assert len(reply.gap_seconds) == len(WORDS) - 1
    assert min(reply.gap_seconds) >= PACE / 2
    assert reply.duration_seconds >= len(paced) * PACE
    assert reply.longest_gap[0] == max(reply.gap_seconds)


def test_what_is_sent():
    with OpenAiServer(lambda *_: Scripted([Write(b"".join(CHAT))])) as server:
        client = client_of(server)
        client.infer_stream(request(), timeout_seconds=5)
        of_three = request(max_tokens=np.array([3], np.int32))
        client.infer_stream(of_three, timeout_seconds=5)
        client_of(server, "completions").infer_stream(request(), timeout_seconds=5)
    bodies = [body for _, body in server.asked]
    assert bodies[0] == {
        "model": "chatty",
        "messages": [{"role": "user", "content": "hé"}],
        "max_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
    }
    assert [body["max_tokens"] for body in bodies] == [8, 3, 8]
    assert server.asked[-1][0] == "/v1/completions"
    assert bodies[-1]["prompt"] == "hé"
    for name in ("x-request-id", "ce-id"):
        assert server.headers[0][name] == "tritonwatch-synthetic-x-1"


def test_a_limit_of_another_name_replaces_ours():
    wanted = {"max_completion_tokens": 16, "temperature": 1}
    with OpenAiServer(lambda *_: Scripted([Write(b"".join(CHAT))])) as server:
        client_of(server).infer_stream(
            replace(request(), parameters=wanted), timeout_seconds=5
        )
    ((_, body),) = server.asked
    assert "max_tokens" not in body
    assert wanted.items() <= body.items()


def test_one_connection_serves_all_requests():
    with OpenAiServer(lambda *_: Scripted([Write(b"".join(CHAT))])) as server:
        client = client_of(server)
        for _ in range(3):
            client.infer_stream(request(), timeout_seconds=5)
        assert server.connections == 1


GOOD = {
    "in bytes": [Write(b"".join(CHAT)[i : i + 1]) for i in range(len(b"".join(CHAT)))],
    "crlf": [Write(b"".join(CHAT).replace(b"\n", b"\r\n"))],
    "comments": [Write(b": ping\n\n" + b": ping\n\n".join(CHAT))],
    "no usage": [Write(b"".join((ROLE, *WORDS, END, DONE)))],
}


@pytest.mark.parametrize("name", GOOD)
def test_streams_that_are_right(name):
    reply = asked(*GOOD[name])
    assert (text_of(reply), reply.responses) == ("Guten Tag 🙂!", 3)
    assert reply.tokens == (Tokens() if name == "no usage" else Tokens(9, 4))


def test_a_stream_that_ends_with_its_connection_is_read_to_its_end():
    assert text_of(asked(Write(b"".join(CHAT)), is_chunked=False)) == "Guten Tag 🙂!"


def test_reasoning_is_a_response_and_no_part_of_the_text():
    writes = [Write(delta(reasoning_content="hm")), *map(Write, CHAT)]
    reply = asked(*writes)
    assert (text_of(reply), reply.responses) == ("Guten Tag 🙂!", 4)


ERRORS = event({"error": {"message": "out of memory", "code": 500}})
BAD = {
    "no [DONE]": ([*map(Write, CHAT[:-1])], errors.ProtocolError, "without [DONE]"),
    "broken": ([Write(ROLE + WORDS[0]), Write(None, 0.05)], errors.ProtocolError, ""),
    "only a role": ([Write(ROLE + END + DONE)], errors.ProtocolError, "content"),
    "an error": ([Write(WORDS[0]), Write(ERRORS)], errors.ModelError, "out of memory"),
    "an error of old": (
        [Write(event({"object": "error", "message": "gone"}))],
        errors.ModelError,
        "gone",
    ),
    "no JSON": ([Write(b"data: {\n\n")], errors.ProtocolError, "event"),
    "deep": ([Write(b"data: " + b"[" * 60_000 + b"\n\n")], errors.ProtocolError, ""),
    "10 MB": (
        [Write(b"data: " + b"x" * (10 << 20) + b"\n\n")],
        errors.ProtocolError,
        str(MAX_EVENT_BYTES),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_streams_that_go_wrong(name):
    writes, kind, text = BAD[name]
    with pytest.raises(kind) as caught:
        asked(*writes)
    assert text in str(caught.value)


def test_tokens_without_text_are_an_answer():
    reply = asked(Write(ROLE), Write(END), Write(usage(9, 8)), Write(DONE))
    assert (reply.tokens, reply.responses) == (Tokens(9, 8), 0)


ENDLESS = {
    "silent": lambda: [*map(Write, CHAT[:-1]), Write(DONE, 5.0)],
    "words": lambda: (Write(WORDS[0], 0.02) for _ in range(250)),
    "comments": lambda: (Write(b": ping\n\n", 0.02) for _ in range(250)),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_stream_that_never_ends_is_late(name):
    started = time.monotonic()
    with pytest.raises(errors.DeadlineError):
        asked(*ENDLESS[name](), seconds=0.5)
    assert time.monotonic() - started < patience(3)


STATUSES = {
    401: (errors.DeniedError, "target.headers"),
    404: (errors.InvalidRequestError, "no such model"),
    429: (errors.BusyError, "429"),
    500: (errors.ModelError, "500"),
    503: (errors.UnavailableError, "503"),
}


@pytest.mark.parametrize("status", STATUSES)
def test_statuses(status):
    kind, text = STATUSES[status]
    body = b'{"error": {"message": "no such model", "type": "x"}}'
    with pytest.raises(kind) as caught:
        asked(Write(body), status=status, content_type="application/json")
    assert text in str(caught.value)
    assert "no such model" in str(caught.value)
    assert "{" not in str(caught.value)


def test_an_answer_that_is_not_streamed_is_no_answer():
    with pytest.raises(errors.ProtocolError, match="event-stream"):
        asked(Write(b'{"choices": []}'), content_type="application/json")


LIVE = {
    "healthy": ({"/health": (200, b"")}, True),
    "without the path": ({"/health": (404, b"{}")}, True),
    "loading": ({"/health": (503, b"")}, False),
    "all loads": ({"/health": (404, b""), "/v1/models": (503, b"")}, False),
    "wrong key": ({"/health": (404, b""), "/v1/models": (401, b"")}, False),
}


@pytest.mark.parametrize("name", LIVE)
def test_a_server_that_answers_is_live_and_may_be_ready(name):
    pages, ready = LIVE[name]
    with OpenAiServer(lambda *_: Scripted([])) as server:
        server.pages |= pages
        client = client_of(server)
        assert client.live(timeout_seconds=5)
        call = client.ready_later("", "", timeout_seconds=5)
        assert client.ready_answer(call) is ready


@pytest.mark.parametrize("status", [502, 504])
def test_a_proxy_without_its_server_is_not_live(status):
    with OpenAiServer(lambda *_: Scripted([])) as server:
        server.pages["/health"] = status, b"<html>"
        with pytest.raises(errors.TritonError):
            client_of(server).live(timeout_seconds=5)


def test_the_models_and_what_the_server_is():
    with OpenAiServer(lambda *_: Scripted([]), models=("a", "b", "a")) as server:
        server.pages["/version"] = 200, b'{"version": "0.11.2"}'
        client = client_of(server)
        index = client.repository_index(timeout_seconds=5)
        info = client.server_info(timeout_seconds=5)
        server.pages["/version"] = 404, b"{}"
        assert client.server_info(timeout_seconds=5).version == ""
    assert [(e.name, e.version, e.ready) for e in index] == [
        ("a", "", True),
        ("b", "", True),
    ]
    assert (info.product, info.version, info.numbers) == ("vllm", "0.11.2", None)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"data": 3}', b'{"data": [' + b"{}," * 1000 + b"{}]}"]
)
def test_a_list_of_models_that_is_none(body):
    with OpenAiServer(lambda *_: Scripted([])) as server:
        server.pages["/v1/models"] = 200, body
        with pytest.raises(errors.ProtocolError):
            client_of(server).repository_index(timeout_seconds=5)


def test_models_without_a_usable_name_are_left_out():
    with OpenAiServer(lambda *_: Scripted([])) as server:
        listed = b'{"data": [{"id": 3}, {}, "x", {"id": "%s"}, {"id": "ok"}]}'
        server.pages["/v1/models"] = 200, listed % (b"x" * 2000)
        [entry] = client_of(server).repository_index(timeout_seconds=5)
    assert entry.name == "ok"
