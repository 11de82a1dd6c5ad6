"""Server-sent events cut anywhere, and lines without end."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from exporter.triton.event_stream import MAX_EVENT_BYTES, EventStream
from loadtests.engine.http_messages import Generate, StreamedAnswer

TEXT = "größer 東京 😀 e\u0301"
PIECE = 1 << 16
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
)


def event(text):
    document = {"text_output": text, "num_output_tokens": 2}
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


CONTENT = event(TEXT) + event(TEXT[::-1])


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


def test_an_answer_of_one_line_without_end_is_refused_and_not_kept():
    answer = StreamedAnswer(Generate(["text_output"]))
    answer.feed(HEAD)
    for piece in pieces(4 * MAX_EVENT_BYTES):
        answer.feed(piece)
        assert answer.held_bytes <= MAX_EVENT_BYTES + PIECE
    with pytest.raises(ValueError, match="an event is larger than"):
        answer.events()
