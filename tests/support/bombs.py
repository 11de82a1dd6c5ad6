"""Bodies that are worse than they look: small ones that become much, and hostile spans."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any, Final

MEBIBYTE = b" " * (1 << 20)


def gzip_bomb(mebibytes: int) -> bytes:
    """Spaces as one sound gzip member (RFC 1952)."""
    total = 0
    for _ in range(mebibytes):
        total = zlib.crc32(MEBIBYTE, total)
    tail = struct.pack("<II", total, (mebibytes << 20) % (1 << 32))
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + _deflated(mebibytes) + tail


def zlib_bomb(mebibytes: int) -> bytes:
    """Spaces as a sound zlib stream (RFC 1950)."""
    total = 1
    for _ in range(mebibytes):
        total = zlib.adler32(MEBIBYTE, total)
    return b"\x78\x9c" + _deflated(mebibytes) + struct.pack(">I", total)


def _deflated(mebibytes: int) -> bytes:
    # After a full flush nothing refers back: what compressed once may be repeated.
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * mebibytes + b"\x03\x00"


# Traces in OTLP. Each body is of one content type and below what a tap takes.


def delimited(field: int, content: bytes) -> bytes:
    """One field of a protobuf message."""
    size, prefix = len(content), bytearray([field << 3 | 2])
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    return bytes([*prefix, size]) + content


_MANY: Final = 1_000_000
_EMPTY_OBJECTS: Final = b",".join([b"{}"] * 690_000)
DEEP_ARRAYS: Final = b"[" + b",".join([b"[" * 900 + b"]" * 900] * 1100) + b"]"
_JSON: Final = {
    "spans": b'{"resourceSpans":[{"scopeSpans":[{"spans":[%b]}]}]}' % _EMPTY_OBJECTS,
    "attributes": b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[%b]}]}]}]}'
    % _EMPTY_OBJECTS,
    "deep arrays": DEEP_ARRAYS,
    "UTF-16": '["\u2200",'.encode("utf-16-le") + b"[\0]\0,\0" * 300_000 + b"[\0]\0]\0",
}
_IDS: Final = delimited(1, b"t" * 16) + delimited(2, b"s" * 8)
_PROTOBUF: Final = {
    "fields": b"\x18\0" * _MANY,
    "resources": b"\x0a\0" * _MANY,
    "scopes": delimited(1, b"\x12\0" * _MANY),
    "spans": delimited(1, delimited(2, b"\x12\0" * _MANY)),
    "attributes": delimited(1, delimited(2, delimited(2, b"\x4a\0" * _MANY))),
    "attributes of half the size": delimited(
        1, delimited(2, delimited(2, _IDS + b"\x4a\0" * (_MANY // 2 - 100)))
    ),
    "events": delimited(1, delimited(2, delimited(2, b"\x5a\0" * _MANY))),
}
MILLION_EMPTY: Final = {
    **{name: ("application/json", body) for name, body in _JSON.items()},
    **{
        f"{name} as protobuf": ("application/x-protobuf", body)
        for name, body in _PROTOBUF.items()
    },
}
"""Content type and body, by what there is so much of."""


FOREIGN_SPANS: Final = (
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[%b]}]}]}'
    % b",".join(
        [b'{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331"}']
        * 18_000
    )
)
"""Valid spans, none of which the sidecar keeps."""


def unfinished_spans(first: int, number: int, name_bytes: int = 0) -> bytes:
    """Spans of ever other models that wait for the rest of their requests."""
    return _export(
        _model_span(n, _other_model(n, name_bytes))
        for n in range(first, first + number)
    )


def unfinished_spans_of(model: str, first: int, number: int) -> bytes:
    """Spans of one model that wait for the rest of their requests."""
    return _export(_model_span(n, model) for n in range(first, first + number))


def finished_spans(first: int, number: int, name_bytes: int = 0) -> bytes:
    """Whole requests to ever other models."""
    return _export(
        span
        for n in range(first, first + number)
        for span in _request(n, _other_model(n, name_bytes))
    )


def finished_spans_of(model: str, first: int, number: int) -> bytes:
    """Whole requests to one model."""
    return _export(
        span for n in range(first, first + number) for span in _request(n, model)
    )


def _request(number: int, model: str) -> tuple[dict[str, Any], ...]:
    network = {"HTTP_RECV_START": 0, "HTTP_SEND_END": 9}
    compute = {"COMPUTE_START": 2, "COMPUTE_END": 8}
    return (
        _span("InferRequest", number, network, "e"),
        _model_span(number, model),
        _span("compute", number, compute, "c", "0"),
    )


def _other_model(number: int, name_bytes: int) -> str:
    return f"m{number}".ljust(name_bytes, "x")


def _model_span(number: int, name: str) -> dict[str, Any]:
    marks = {"REQUEST_START": 1, "QUEUE_START": 1, "REQUEST_END": 9}
    return {
        **_span(name, number, marks, "0", "e"),
        "attributes": [
            {"key": "triton.model_name", "value": {"stringValue": name}},
            {"key": "triton.model_version", "value": {"intValue": "1"}},
        ],
    }


def _span(
    name: str, number: int, marks: dict[str, int], own: str, parent: str = ""
) -> dict[str, Any]:
    begin = 1_795_243_593_000_000_000 + 1_000_000 * number
    return {
        "name": name,
        "traceId": f"{number:032x}",
        "spanId": f"{own}{number:015x}",
        "parentSpanId": f"{parent}{number:015x}" if parent else "",
        "events": [
            {"name": mark, "timeUnixNano": str(begin + 100_000 * at)}
            for mark, at in marks.items()
        ],
    }


def _export(spans: Any) -> bytes:
    return json.dumps(
        {"resourceSpans": [{"scopeSpans": [{"spans": [*spans]}]}]}
    ).encode()


# gRPC.
