"""The frames and headers of an HTTP/2 client are counted however its data are split."""

from __future__ import annotations

import random

import hpack
import pytest
from http2_wire import frame

from exporter.network.connections import MAX_HEAD_BYTES
from exporter.taps.http2_frames import (
    MAX_HEADERS,
    FrameReader,
    FramesError,
    number_of_headers,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, CONTINUATION, END_HEADERS, PADDED, PRIORITY = 1, 9, 4, 8, 32
INDEXED = b"\x82"
"""One header (:method GET) of one byte."""
FRAMES = (
    frame(4, 0, 0),
    frame(HEADERS, END_HEADERS, 1, INDEXED * 40),
    frame(0, 0, 1, b"d" * 300),
    frame(0, 1, 1),
    frame(HEADERS, 0, 3, INDEXED),
    frame(CONTINUATION, 0, 3),
    frame(CONTINUATION, END_HEADERS, 3, INDEXED * (MAX_HEADERS - 1)),
    frame(6, 0, 0, b"12345678"),
)


def read(*frames: bytes, size: int = 10_000) -> int:
    """The number of frames in data that arrive in parts of this size."""
    data, reader = PREFACE + b"".join(frames), FrameReader()
    return sum(reader.read(data[at : at + size]) for at in range(0, len(data), size))


@pytest.mark.parametrize("size", [*range(1, 40), 309, 10_000])
def test_each_frame_is_counted_once(size):
    assert read(*FRAMES, size=size) == len(FRAMES)
    with pytest.raises(FramesError):
        read(*FRAMES, frame(HEADERS, END_HEADERS, 5, INDEXED * 301), size=size)


def block(*sizes: int) -> bytes:
    """A block with one long header in frames of so many bytes, their heads included."""
    kinds = [HEADERS] + [CONTINUATION] * (len(sizes) - 1)
    ends = [0] * (len(sizes) - 1) + [END_HEADERS]
    long = sum(sizes) - 9 * len(sizes)
    prefix = (
        b"\x01\x7f"  # a literal with a name of the table, and of 127 bytes and more
    )
    left = long - len(prefix) - 3 - 127
    text = prefix + bytes([left & 127 | 128, left >> 7 & 127 | 128, left >> 14])
    text = text.ljust(long, b"v")
    frames = []
    for kind, end, size in zip(kinds, ends, sizes, strict=True):
        frames.append(frame(kind, end, 1, text[: size - 9]))
        text = text[size - 9 :]
    return b"".join(frames)


@pytest.mark.parametrize("frames", [1, 4, 1_000])
@pytest.mark.parametrize("size", [7, 1 << 20])
def test_a_header_block_may_be_as_long_as_a_request_s_head_and_no_longer(frames, size):
    each = MAX_HEAD_BYTES // frames
    rest = MAX_HEAD_BYTES - each * (frames - 1)
    longest = block(*[each] * (frames - 1), rest)
    assert read(longest, longest, size=size) == 2 * frames
    with pytest.raises(FramesError):
        read(block(*[each] * (frames - 1), rest + 1), size=size)


def test_a_message_is_no_header_block():
    assert read(frame(0, 0, 1, b"d" * (MAX_HEAD_BYTES + 1))) == 1


@pytest.mark.parametrize("number", [MAX_HEADERS, MAX_HEADERS + 1])
@pytest.mark.parametrize("flags", [0, PADDED, PRIORITY, PADDED | PRIORITY])
def test_padding_and_priority_are_no_headers(number, flags):
    content = INDEXED * number
    if flags & PRIORITY:
        content = b"\0\0\0\0\x10" + content
    if flags & PADDED:
        content = b"\x07" + content + b"\0" * 7
    sent = frame(HEADERS, END_HEADERS | flags, 1, content)
    if number == MAX_HEADERS:
        assert read(sent, *FRAMES) == 1 + len(FRAMES)
    else:
        with pytest.raises(FramesError):
            read(sent)


@pytest.mark.parametrize("huffman", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_as_many_headers_are_found_as_were_encoded(huffman, seed):
    drawn = random.Random(seed)  # noqa: S311 - no secret
    encoder = hpack.Encoder()
    for _ in range(4):
        headers = [
            (
                drawn.choice(["te", ":path", "accept", "x" * drawn.randrange(1, 400)]),
                "v" * drawn.choice([0, 1, 126, 127, 128, drawn.randrange(2_000)]),
                drawn.random() < 0.3,
            )
            for _ in range(drawn.randrange(30))
        ]
        encoded = encoder.encode(headers, huffman=huffman)
        assert number_of_headers(encoded) == len(headers)


@pytest.mark.parametrize(
    "broken",
    [b"\xff", b"\xff\x80\x80\x80\x80\x01", b"\x00\x01", b"\x00\x01a", b"\x04\x05ab"],
)
def test_a_block_that_cannot_be_read_is_refused(broken):
    with pytest.raises(FramesError):
        number_of_headers(INDEXED + broken)


@pytest.mark.parametrize(
    "other",
    [frame(6, 0, 0, b"12345678"), frame(4, 0, 0, b"s" * 600), frame(0, 0, 1, b"data")],
    ids=["pings", "settings", "data"],
)
def test_many_frames_that_carry_no_call_are_refused(other):
    assert read(other * 1_000) == 1_000
    with pytest.raises(FramesError):
        read(other * 1_001)
    carrying = frame(HEADERS, END_HEADERS, 1, INDEXED * 5)
    assert read((carrying + other * 4) * 2_000) == 10_000
    with pytest.raises(FramesError):
        read((carrying + other * 5) * 1_001)
