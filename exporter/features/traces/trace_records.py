"""The bytes of a Triton trace file to traces, record by record.

A file is one JSON array of small records in no order of time:

    {"id":1,"model_name":"m","model_version":1,"request_id":"r","parent_id":7}
    {"id":1,"timestamps":[{"name":"REQUEST_START","ns":2852033521710}]}
    {"id":1,"activity":"TENSOR_QUEUE_INPUT","tensor":{…}}

Triton pastes names, request ids and text tensors in raw, so that one hostile id makes
the array no JSON. The records' own shape is so narrow that they are found without a
JSON parser: every byte is read a bounded number of times. Records of any other shape are
counted, and do not affect the others.

A client that may send requests can also write records into the file, through its request
id. A mark with two different times makes its trace invalid, except for marks that come with
each response of a streamed answer. A forged trace cannot be distinguished from a real one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from exporter.access.own_traffic import REQUEST_ID_PREFIX
from exporter.features.traces.traced_request import (
    KNOWN,
    MAX_TEXT_BYTES,
    Identity,
    Marks,
    RequestTrace,
    measured,
    shortened,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Bytes per call of a regular expression, which blocks the interpreter for well under a
# millisecond, so that it does not delay a probe.
_WINDOW_BYTES: Final = 1 << 16
_RECORD: Final = b'{"id":'
_NEXT_RECORD: Final = b',{"id":'
_TIMESTAMP: Final = re.compile(
    rb'\{"id":([0-9]{1,19}),"timestamps":\[\{"name":"([^"]{1,64})",'
    rb'"ns":([0-9]{1,19})\}\]\}'
)
_MODEL: Final = re.compile(rb'\{"id":([0-9]{1,19}),"model_name":"')
_ACTIVITY: Final = re.compile(rb'\{"id":[0-9]{1,19},"activity":"')
_VERSION: Final = b'","model_version":'
_REST: Final = re.compile(
    rb'(-?[0-9]{1,19})(?:,"request_id":"(.*)")?(?:,"parent_id":([0-9]{1,19}))?\}'
    rb"[\]\s]*",
    re.DOTALL,
)
_CUT_REST: Final = re.compile(rb'(-?[0-9]{1,19}),"request_id":"(.*)', re.DOTALL)
_MAX_DEPTH: Final = 32
"""Maximum depth of calls between models."""
_COMPLETE: Final = re.compile(rb'(?:\}\]\}|"\}|[0-9]\}|\}\})\]\s*\Z')
_CUT_TIMESTAMP: Final = re.compile(rb'"ns":[0-9]*\}\]\s*\Z')
_EMPTY: Final = re.compile(rb"\[\s*\]\s*")
_KNOWN_MARKS: Final = {name.encode(): name for name in KNOWN}


@dataclass(slots=True)
class Parsed:
    """The content of a file. `malformed` counts records, `invalid` whole traces."""

    traces: list[RequestTrace] = field(default_factory=list)
    malformed: int = 0
    invalid: int = 0


@dataclass(slots=True)
class _Trace:
    marks: Marks = field(default_factory=Marks)
    identity: Identity | None = None
    contradicted: bool = False


def is_complete(data: bytes) -> bool:
    """Return whether the array is closed, as far as its end shows.

    Triton writes a file under its final name, block by block: a reader can meet one
    that is still being written, or never will be.
    """
    tail = data[-256:]
    if _EMPTY.fullmatch(data[:64]):
        return True
    return bool(_COMPLETE.search(tail)) and not _CUT_TIMESTAMP.search(tail)


def parse(data: bytes) -> Parsed:
    """Return every complete trace; tensors are skipped."""
    traces: dict[bytes, _Trace] = {}
    malformed = 0
    for start, end in _windows(data):
        fitting = _read_marks(data, start, end, traces)
        fitting += _read_models(data, start, end, traces)
        fitting += len(_ACTIVITY.findall(data, start, end))
        malformed += max(0, data.count(_RECORD, start, end) - fitting)
    parsed = Parsed(malformed=malformed)
    for trace in traces.values():
        _attribute(trace, traces)
        whose = None if trace.contradicted else trace.identity
        found = None if whose is None else measured(whose, trace.marks)
        if found is None:
            parsed.invalid += 1
        else:
            parsed.traces.append(found)
    return parsed


def _windows(data: bytes) -> Iterator[tuple[int, int]]:
    """Cuts between records: memory and time of a call depend on the window alone."""
    start = 0
    while start < len(data):
        end = data.find(_RECORD, start + _WINDOW_BYTES)
        end = len(data) if end < 0 else end
        yield start, end
        start = end


def _read_marks(data: bytes, start: int, end: int, traces: dict[bytes, _Trace]) -> int:
    matches = _TIMESTAMP.findall(data, start, end)
    for key, name, digits in matches:
        trace = traces.get(key)
        if trace is None:
            trace = traces[key] = _Trace()
        known = _KNOWN_MARKS.get(name)
        if known is not None:
            trace.marks.add(known, int(digits))
    return len(matches)


def _read_models(data: bytes, start: int, end: int, traces: dict[bytes, _Trace]) -> int:
    found, position = 0, start
    while match := _MODEL.search(data, position, end):
        position = data.find(_NEXT_RECORD, match.end(), end)
        position = end if position < 0 else position
        key = match[1]
        body = data[match.end() : position].removesuffix(b",")
        identity = _identity(key, body, traces.get(key))
        if identity is None:
            continue
        found += 1
        trace = traces.setdefault(key, _Trace())
        if trace.identity is not None and trace.identity != identity:
            trace.contradicted = True
        trace.identity = identity
    return found


def _identity(key: bytes, body: bytes, trace: _Trace | None) -> Identity | None:
    model, _, rest = body.partition(_VERSION)
    whole = _REST.fullmatch(rest)
    if whole is not None:
        version, request_id, parent = whole.groups()
        child = parent is not None and int(parent) != 0
        parent = parent if parent and child else b""
    else:
        # The request id holds what looks like the next record. Only clients' requests
        # have marks of the network, so these tell a child from a client's.
        cut = _CUT_REST.match(rest)
        if cut is None or trace is None:
            return None
        version, request_id = cut.groups()
        child, parent = not trace.marks.of_the_network, b""
    return Identity(
        _text(model),
        version.decode(),
        _text(request_id or b""),
        key.decode(),
        child,
        parent.decode(),
    )


def _attribute(trace: _Trace, traces: Mapping[bytes, _Trace]) -> None:
    """Set a child's id to that of our request which caused it."""
    whose = trace.identity
    cause = whose
    for _ in range(_MAX_DEPTH):
        if cause is None or not cause.parent:
            break
        parent = traces.get(cause.parent.encode())
        cause = None if parent is None else parent.identity
    if (
        whose is not None
        and cause is not None
        and cause.request_id.startswith(REQUEST_ID_PREFIX)
    ):
        trace.identity = replace(whose, request_id=cause.request_id)


def _text(raw: bytes) -> str:
    return shortened(raw[:MAX_TEXT_BYTES].decode("utf-8", "replace"))
