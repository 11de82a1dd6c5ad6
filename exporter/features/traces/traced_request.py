"""One traced request: when it came, when its answer left, and where the time went.

The phases cut the time that the client's request spent in the server at Triton's own
marks, so they add up to the total:

    network_in      first byte (HTTP) or whole message (gRPC) received -> queued
    queue           queued -> taken by a model instance
    compute_input   inputs gathered
    compute_infer   the model's own work
    compute_output  outputs gathered, until they are done or the answer leaves
    network_out     the answer on its way, until its last byte is handed to the network

Triton's COMPUTE_END often lies after the answer has left (the Python backend gives the
request back later); what comes after the answer is nobody's latency and in no phase.
Marks that are not there leave their phases absent: a request answered from the response
cache or by an ensemble has no queue or compute of its own, and the part between
network_in and network_out is then in no phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Protocol = Literal["grpc", "http", ""]

PHASES: Final = (
    "network_in",
    "queue",
    "compute_input",
    "compute_infer",
    "compute_output",
    "network_out",
)
LONGEST_NS: Final = 86_400 * 10**9
LATEST_NS: Final = 2**63 - 1

MAX_TEXT_BYTES: Final = 256
"""Of the names of models and the ids of requests. Triton's model names are folder names,
which have at most 255."""

# In each pair: where the request's time in the server begins, and where it ends.
_ARRIVAL: Final[tuple[tuple[str, Protocol], ...]] = (
    ("GRPC_WAITREAD_END", "grpc"),
    ("HTTP_RECV_START", "http"),
)
_SEND_START: Final = {"grpc": "GRPC_SEND_START", "http": "HTTP_SEND_START"}
_SEND_END: Final = {"grpc": "GRPC_SEND_END", "http": "HTTP_SEND_END"}
_COMPUTE: Final = (
    "QUEUE_START",
    "COMPUTE_START",
    "COMPUTE_INPUT_END",
    "COMPUTE_OUTPUT_START",
)
NETWORK_MARKS: Final = frozenset(
    {"GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "HTTP_RECV_START", "HTTP_RECV_END"}
)
LAST_MARKS: Final = frozenset(_SEND_END.values())
"""Set once for each response of a decoupled model; the last one counts."""
FIRST_MARKS: Final = (
    frozenset({*_COMPUTE, "COMPUTE_END", "REQUEST_START", "REQUEST_END"})
    | frozenset(_SEND_START.values())
    | NETWORK_MARKS
)
"""The other marks that are known; the first one counts."""


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """One request to one model, times in seconds.

    `phases` are in the order of PHASES, None where Triton set no marks. `total_seconds`
    is None for a request whose begin or end on the network is not known. A `child` was
    asked by an ensemble or another model: its total is time inside the server, and no
    client waited for it alone. `begin_ns` is on the clock of the source: wall clock in
    spans, the server's monotonic clock in files.
    """

    model: str
    version: str
    request_id: str
    trace_id: str
    child: bool
    protocol: Protocol
    begin_ns: int
    phases: tuple[float | None, ...]
    total_seconds: float | None


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose request it was."""

    model: str
    version: str
    request_id: str
    trace_id: str
    child: bool
    parent: str = ""
    """Of a child in a trace file: the id of the trace that caused it."""


def shortened(text: str) -> str:
    """The first `MAX_TEXT_BYTES` bytes of a name or id, in whole characters.

    Raises:
        UnicodeEncodeError: it holds half a character.
    """
    encoded = text.encode()
    if len(encoded) <= MAX_TEXT_BYTES:
        return text
    return encoded[:MAX_TEXT_BYTES].decode("utf-8", "ignore")


def measured(whose: Identity, marks: Mapping[str, int]) -> RequestTrace | None:
    """The trace that Triton's marks (name to nanoseconds) describe.

    Of marks that repeat, `marks` holds what FIRST_MARKS and LAST_MARKS say. None if they
    contradict each other: an end before its begin, or more than a day after.
    """
    protocol, begin, end = _span(whose, marks)
    if begin is None:
        return None
    last = end if end is not None else marks.get("REQUEST_END", begin)
    if not 0 <= last - begin <= LONGEST_NS:
        return None
    phases = _phases(marks, protocol, begin, last)
    known = end is not None and (whose.child or protocol or _in_process(marks))
    return RequestTrace(
        whose.model,
        whose.version,
        whose.request_id,
        whose.trace_id,
        whose.child,
        protocol,
        begin,
        phases if end is not None else (*phases[:-1], None),
        (last - begin) * 1e-9 if known else None,
    )


def _span(
    whose: Identity, marks: Mapping[str, int]
) -> tuple[Protocol, int | None, int | None]:
    """Protocol, begin and end of the time that counts."""
    if not whose.child:
        for name, protocol in _ARRIVAL:
            begin = marks.get(name)
            if begin is not None:
                # No SEND_END: nobody was there to take the answer.
                return protocol, begin, marks.get(_SEND_END[protocol])
    return "", marks.get("REQUEST_START"), marks.get("REQUEST_END")


def _in_process(marks: Mapping[str, int]) -> bool:
    return NETWORK_MARKS.isdisjoint(marks)


def _phases(
    marks: Mapping[str, int], protocol: Protocol, begin: int, end: int
) -> tuple[float | None, ...]:
    """The time from `begin` to `end`, cut at the marks; no cut lies outside of it."""
    cuts = [marks.get(name) for name in _COMPUTE]
    queued = _clip(cuts[0], begin, end)
    network_in = queued - begin if protocol and cuts[0] is not None else None
    sending = marks.get(_SEND_START[protocol]) if protocol else None
    if None in cuts:
        network_out = None if sending is None else end - _clip(sending, queued, end)
        return (_seconds(network_in), None, None, None, None, _seconds(network_out))
    done = marks.get("COMPUTE_END", end)
    if sending is not None and sending >= (cuts[-1] or 0):
        done = min(done, sending)
    edges = [begin]
    for cut in (*cuts, done):
        edges.append(_clip(cut, edges[-1], end))
    inner = [(edges[i + 1] - edges[i]) * 1e-9 for i in range(1, len(edges) - 1)]
    network_out = end - edges[-1] if protocol else None
    return (_seconds(network_in), *inner, _seconds(network_out))


def _clip(value: int | None, low: int, high: int) -> int:
    return low if value is None or value < low else min(value, high)


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds * 1e-9
