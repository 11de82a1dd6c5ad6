"""The frames of a client are counted however its data are split."""

from __future__ import annotations

import pytest
from http2_wire import frame

from exporter.network.connections import MAX_HEAD_BYTES
from exporter.taps.http2_frames import FrameCounter, LongHeadersError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, CONTINUATION, END_HEADERS = 1, 9, 4
FRAMES = (
    frame(4, 0, 0),
    frame(HEADERS, END_HEADERS, 1, b"h" * 40),
    frame(0, 0, 1, b"d" * 300),
    frame(0, 1, 1),
    frame(6, 0, 0, b"12345678"),
)


@pytest.mark.parametrize("size", [*range(1, 40), 309, 10_000])
def test_each_frame_is_counted_once(size):
    data, counter = PREFACE + b"".join(FRAMES), FrameCounter()
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    assert sum(map(counter.count, parts)) == len(FRAMES)


def block(*sizes: int) -> bytes:
    """A header block of frames with so many bytes each, their heads included."""
    kinds = [HEADERS] + [CONTINUATION] * (len(sizes) - 1)
    ends = [0] * (len(sizes) - 1) + [END_HEADERS]
    return b"".join(
        frame(kind, end, 1, b"h" * (size - 9))
        for kind, end, size in zip(kinds, ends, sizes, strict=True)
    )


@pytest.mark.parametrize("frames", [1, 4, 1_000])
@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_a_header_block_may_be_as_long_as_a_request_s_head_and_no_longer(frames, chunk):
    def counted(longer: int) -> int:
        counter, each = FrameCounter(), MAX_HEAD_BYTES // frames
        rest = MAX_HEAD_BYTES - each * (frames - 1) + longer
        whole = block(*[each] * (frames - 1), rest)
        data = PREFACE + whole + block(9)
        parts = [data[at : at + chunk] for at in range(0, len(data), chunk)]
        return sum(map(counter.count, parts))

    assert counted(0) == frames + 1
    with pytest.raises(LongHeadersError):
        counted(1)


def test_a_message_is_no_header_block():
    counter = FrameCounter()
    assert counter.count(PREFACE + frame(0, 0, 1, b"d" * (MAX_HEAD_BYTES + 1))) == 1
