"""Fuzz targets: streams that arrive in pieces: answers of servers, frames of HTTP/2 clients."""

from __future__ import annotations

import json

from exporter.taps.http2_frames import FrameReader, FramesError
from exporter.triton.event_stream import EventStream
from loadtests.engine.http_messages import Generate, OpenAi, StreamedAnswer

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
)
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEAD_BYTES = 9


def _pieces(content: bytes, cuts: bytes) -> list[bytes]:
    """The content, cut after as many bytes as each of `cuts` says, over and over."""
    pieces, start = [], 0
    while cuts and start < len(content):
        size = cuts[len(pieces) % len(cuts)] + 1
        pieces.append(content[start : start + size])
        start += size
    return pieces or [content]


def _events(content: bytes) -> list[bytes]:
    """The data of its events, read all at once."""
    events: list[bytes] = []
    data: list[bytes] = []
    for line in content.split(b"\n")[:-1]:
        text = line.removesuffix(b"\r")
        if text.startswith(b"data:"):
            data.append(text[5:].removeprefix(b" "))
        elif not text and data:
            events.append(b"\n".join(data))
            data = []
    return events


def _split(data: bytes) -> tuple[bytes, bytes]:
    """Sizes of the pieces, as many as the first byte says, and the content."""
    number = data[0] % 8 if data else 0
    return data[1 : 1 + number], data[1 + number :]


def fuzz_event_stream(data: bytes) -> None:
    """However it is cut, the same events come, and no more is kept than was sent."""
    cuts, content = _split(data)
    stream, found = EventStream(), []
    for piece in _pieces(content, cuts):
        found += stream.feed(piece)
        assert 0 <= stream.held_bytes <= len(content)
    assert found == _events(content)


def fuzz_streamed_answer(data: bytes) -> None:
    """Either dialect: a meaning of each event or one fault, and tokens never fall."""
    cuts, content = _split(data)
    for dialect in (Generate(["text_output"]), OpenAi()):
        answer, said, tokens = StreamedAnswer(dialect), [], 0
        answer.feed(_HEAD % len(content))
        try:
            for piece in _pieces(content, cuts):
                answer.feed(piece)
                said += answer.events()
                assert answer.tokens >= 0
                if isinstance(dialect, Generate):
                    assert answer.tokens >= tokens
                tokens = answer.tokens
        except ValueError:
            continue
        events = _events(content)
        assert len(said) == len(events)
        assert answer.complete
        for event, one in zip(events, said, strict=True):
            assert one.error is None or one.error
            if event != b"[DONE]":
                assert isinstance(json.loads(event), dict)
        answer.fault()


def _frames(pieces: list[bytes]) -> int | None:
    """Frames whose heads arrived; None if the client is refused."""
    reader = FrameReader()
    try:
        return sum(reader.read(piece) for piece in pieces)
    except FramesError:
        return None


def fuzz_grpc_frames(data: bytes) -> None:
    """However it is cut, the same frames are counted, or refused."""
    cuts, content = _split(data)
    whole = _frames([_PREFACE + content])
    assert whole == _frames([_PREFACE, *_pieces(content, cuts)])
    assert whole is None or whole <= len(content) // _FRAME_HEAD_BYTES


TARGETS = {
    "grpc_frames": fuzz_grpc_frames,
    "event_stream": fuzz_event_stream,
    "streamed_answer": fuzz_streamed_answer,
}
