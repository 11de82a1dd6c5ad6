"""OpenAI's requests and answers, mirrored or logged: their texts arrive as tensors."""

from __future__ import annotations

import json

import pytest
from mirror_bodies import RESPONSE

from exporter import catalogue
from exporter.access.work_board import KnownTokens

CHAT = "/v1/chat/completions"


def body(**fields) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


def chat(*messages) -> bytes:
    return body(messages=list(messages), stream=True)


def events(*documents, end="data: [DONE]\n\n") -> bytes:
    sent = "".join(f"data: {json.dumps(document)}\n\n" for document in documents)
    return (sent + end).encode()


def part(text=None, reason=None, index=0, **delta) -> dict:
    given = delta if text is None else {"content": text, **delta}
    choice = {"index": index, "delta": given, "finish_reason": reason}
    return {"object": "chat.completion.chunk", "model": "m", "choices": [choice]}


def texts(array) -> list[str]:
    assert array.shape[1:] == (1,)
    return [text.decode() for text in array.ravel()]


@pytest.mark.parametrize(
    ("path", "sent", "wanted"),
    [
        (CHAT, chat({"role": "user", "content": "häi"}), ["häi"]),
        (
            CHAT,
            chat(
                {"role": "system", "content": "Be brief."},
                {"role": "assistant", "content": None, "tool_calls": [{}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is it?"},
                        {"type": "image_url", "image_url": {"url": "data:,x"}},
                    ],
                },
            ),
            ["Be brief.\nWhat is it?"],
        ),
        ("/v1/completions", body(prompt="once"), ["once"]),
        ("/openai/v1/completions", body(prompt=["one", "two"]), ["one", "two"]),
    ],
)
def test_the_texts_of_a_request_arrive(serve, path, sent, wanted):
    served = serve()
    assert served.post(sent, path)[:2] == (200, "accepted")
    (got,) = served.got
    assert (got.source, got.model) == ("openai", "m")
    assert texts(got.inputs["text_input"]) == wanted
    assert not got.as_sent
    assert served.samples() == {("m", "openai", "request"): 1}


@pytest.mark.parametrize(
    ("sent", "outcome"),
    [
        (body(messages="none"), "malformed"),
        (body(messages=[]), "malformed"),
        (body(inputs=[]), "malformed"),
        (b'{"model": "m", "messages": [', "malformed"),
        (body(prompt=[1, 2, 3]), "unsupported"),
        (body(prompt="p", model="elsewhere"), "unknown_model"),
        (body(prompt="p", model="secret_m"), "unknown_model"),
        (body(prompt="p", model=7), "malformed"),
    ],
)
def test_what_cannot_be_used_says_why(serve, sent, outcome):
    served = serve()
    served.post(sent, CHAT)
    assert served.got == []
    assert served.outcomes() == {("openai", outcome): 1}


def test_our_own_probes_are_not_read(serve):
    served = serve()
    sent = served.post(body(prompt="p"), CHAT, x_request_id="tritonwatch-1")
    assert sent[1] == "own"


ANSWER = body(
    choices=[
        {"index": 1, "message": {"content": "second"}, "finish_reason": "length"},
        {"index": 0, "message": {"content": "first"}, "finish_reason": "stop"},
    ]
)
STREAM = events(
    part(role="assistant", content=""),
    part("fi"),
    part("sec", index=1),
    part("rst", "stop"),
    part("ond", "length", index=1),
    {"model": "m", "choices": [], "usage": {"completion_tokens": 2}},
)


def v2(parameters=None, **tensors):
    """An answer of KServe-v2 with these outputs of one number."""
    outputs = [
        {"name": name, "datatype": "UINT32", "shape": [1], "data": [value]}
        for name, value in {"other": 1, **tensors}.items()
    ]
    return body(outputs=outputs, parameters=parameters or {})


@pytest.mark.parametrize(
    "sent",
    [
        ANSWER,
        STREAM,
        STREAM.replace(b"\n", b"\r\n"),
        b": ping\n\n" + STREAM,
        STREAM.removesuffix(b"data: [DONE]\n\n"),
    ],
)
def test_a_logged_answer_arrives_whole_however_it_was_sent(serve, sent):
    served = serve()
    assert served.event(sent, RESPONSE)[1] == "accepted"
    (got,) = served.got
    assert got.model == "m"
    assert texts(got.outputs["text_output"]) == ["first", "second"]
    assert texts(got.outputs["finish_reason"]) == ["stop", "length"]


@pytest.mark.parametrize(
    ("sent", "tokens"),
    [
        (STREAM, (None, 2)),
        (body(choices=[{"text": "a"}], usage={"prompt_tokens": 7}), (7, None)),
        (
            body(choices=[{"text": "a"}], usage={"prompt_tokens": -1, "more": "x"}),
            (None, None),
        ),
        (v2(num_input_tokens=7, num_output_tokens=3), (7, 3)),
        (v2(parameters={"num_output_tokens": 5}), (None, 5)),
        (v2(parameters={"num_output_tokens": True}), (None, None)),
    ],
)
def test_answers_report_their_tokens(serve, access, sent, tokens):
    served = serve()
    assert served.event(sent, RESPONSE)[1] == "accepted"
    found = [access.work.answers_of("m", one) for one in ("input", "output")]
    assert found == [n if n is None else KnownTokens(1, n) for n in tokens]


def test_the_other_forms_of_answers_and_requests_arrive(serve):
    served = serve()
    plain = body(choices=[{"text": "once", "finish_reason": "stop"}])
    refused = body(choices=[{"message": {"content": None, "tool_calls": []}}])
    both = body(choices=[{"delta": None, "message": {"content": "both"}}])
    for sent in (plain, refused, both):
        assert served.event(sent, RESPONSE)[1] == "accepted"
    assert served.event(chat({"role": "user", "content": "hello"}))[1] == "accepted"
    first, second, third, request = served.got
    assert texts(first.outputs["text_output"]) == ["once"]
    assert texts(second.outputs["text_output"]) == [""]
    assert texts(second.outputs["finish_reason"]) == [""]
    assert texts(third.outputs["text_output"]) == ["both"]
    assert texts(request.inputs["text_input"]) == ["hello"]


@pytest.mark.parametrize(
    "sent",
    [
        body(error={"message": "out of memory", "code": 500}),
        events(part("fi"), {"error": {"message": "out of memory"}}),
    ],
)
def test_an_error_is_a_failure_that_a_client_saw(serve, sent):
    served = serve()
    assert served.event(sent, RESPONSE)[1] == "accepted"
    assert served.got == []
    seen = {
        s.labels: s.value
        for s in served.collector.collect()
        if s.spec is catalogue.CLIENT_REQUESTS and s.value
    }
    assert seen == {("m", "1", "failure", "mirror"): 1}


@pytest.mark.parametrize(
    "sent",
    [
        events(part("fi"), end=""),
        events({"choices": [{"index": -1, "delta": {}}]}),
        events({"choices": [7]}),
        b"data: nothing\n\n",
        b"data: " + b"[" * 5000 + b"\n\n",
        events(end="data: [DONE]\n\n"),
        body(choices=[]),
    ],
)
def test_an_answer_that_is_cut_off_or_broken_is_malformed(serve, sent):
    served = serve()
    assert served.event(sent, RESPONSE)[0] == 400
    assert served.got == []


def test_halves_of_a_character_do_no_harm(serve):
    served = serve()
    sent = events(part("\ud83d"), part("\ude00 é", "stop"))
    assert served.event(sent, RESPONSE)[1] == "accepted"
    assert texts(served.got[0].outputs["text_output"]) == ["?? é"]


def test_it_can_be_switched_off(serve):
    served = serve(openai=False)
    assert served.post(body(prompt="p"), CHAT)[0] == 404
