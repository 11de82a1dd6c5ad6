"""One traced request: when it came, when its answer left, and where the time went.

The phases cut the time that the client's request spent in the server at Triton's own
marks, so they add up to the total:

    network_in      first byte (HTTP) or whole message (gRPC) received -> queued
    queue           queued -> taken by a model instance
    compute_input   inputs gathered
    compute_infer   the model's own work
    compute_output  outputs gathered, until they are done or the answer leaves
    network_out     the answer on its way, until its last byte is handed to the network

Triton's COMPUTE_END is often later than the answer (the Python backend releases the request
later); time after the answer is not latency of a client, and in no phase.
Marks that are not there leave their phases absent: a request answered from the response
cache or by an ensemble has no queue or compute of its own, and the part between
network_in and network_out is then in no phase.

A decoupled model may answer long after it gave the request back, and more than once. Its
work (compute_infer) lasts until the last response then; that of its outputs is a part of
it and not known by itself.

Over HTTP, `/generate` and `/generate_stream` leave their send times out: they are 0, or in
spans the host's boot. Of such a request the times at which responses were complete count,
and network_out is absent.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

LATEST_NS: Final = 2**63 - 1

NETWORK_MARKS: Final = frozenset(
    {"GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "HTTP_RECV_START", "HTTP_RECV_END"}
)
SEND_START: Final = {"grpc": "GRPC_SEND_START", "http": "HTTP_SEND_START"}
SEND_END: Final = {"grpc": "GRPC_SEND_END", "http": "HTTP_SEND_END"}
COMPLETE: Final = "INFER_RESPONSE_COMPLETE"
"""Over gRPC of the first response alone; over HTTP of each, and of an empty final one."""
COMPUTE: Final = (
    "QUEUE_START",
    "COMPUTE_START",
    "COMPUTE_INPUT_END",
    "COMPUTE_OUTPUT_START",
)

_ONCE: Final = NETWORK_MARKS.union(
    COMPUTE, {"COMPUTE_END", "REQUEST_START", "REQUEST_END"}
)
_LAST: Final = frozenset(SEND_END.values())
_EACH: Final = frozenset({*SEND_START.values(), COMPLETE})
KNOWN: Final = _ONCE | _LAST | _EACH
_BYTES: Final = 100
_BYTES_OF_EACH: Final = 8


class Marks:
    """Times in nanoseconds of the known marks; of a decoupled model's request some repeat.

    `contradicted` is true where one mark has two times, or a time that cannot be.
    """

    __slots__ = ("_each", "_single", "contradicted")

    def __init__(self) -> None:
        self._single: dict[str, int] = {}
        self._each: dict[str, array[int]] = {}
        self.contradicted = False

    def add(self, name: str, ns: int) -> None:
        """Record a mark of `KNOWN`; its time is not negative."""
        if ns > LATEST_NS:
            self.contradicted = True
        elif name in _ONCE:
            if self._single.setdefault(name, ns) != ns:
                self.contradicted = True
        elif name in _LAST:
            self._single[name] = max(self._single.get(name, ns), ns)
        else:
            kept = self._each.get(name)
            if kept is None:
                self._each[name] = array("q", (ns,))
            else:
                kept.append(ns)

    def update(self, other: Marks) -> None:
        """Add those of another part of the same request."""
        for name, ns in other._single.items():
            self.add(name, ns)
        for name, times in other._each.items():
            for ns in times:
                self.add(name, ns)
        self.contradicted |= other.contradicted

    def get(self, name: str) -> int | None:
        """The time of a mark that comes once, or the latest of one that ends a response."""
        return self._single.get(name)

    def each(self, name: str) -> list[int]:
        """The times of a mark that comes with each response, sorted."""
        return sorted(self._each.get(name, ()))

    @property
    def of_the_network(self) -> bool:
        """True if it has marks that only a client's request has."""
        return not NETWORK_MARKS.isdisjoint(self._single)

    @property
    def size_bytes(self) -> int:
        """About how much memory they take."""
        each = sum(len(times) for times in self._each.values())
        held = len(self._single) + len(self._each)
        return _BYTES * held + _BYTES_OF_EACH * each


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
MAX_TEXT_BYTES: Final = 256
"""Limit of models' names and requests' ids. Triton's model names are folder names, of at
most 255 bytes.
"""

_ARRIVAL: Final[tuple[tuple[str, Protocol], ...]] = (
    ("GRPC_WAITREAD_END", "grpc"),
    ("HTTP_RECV_START", "http"),
)


@dataclass(frozen=True, slots=True)
class Responses:
    """Times of the responses to a client's request, in seconds.

    `first_seconds` is from the request's start to its first response, `gaps` from each
    response to the next. Over gRPC an empty final response that the client asked for is one
    of them.
    """

    number: int
    first_seconds: float
    gaps: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """One request to one model, times in seconds.

    `phases` are in the order of PHASES, None where Triton set no marks. `total_seconds`
    is None for a request whose begin or end on the network is not known. A `child` was
    asked by an ensemble or another model: its total is time inside the server, and no
    client waited for it alone. `begin_ns` is when its model's part began, which every
    copy has, on the clock of the source: wall clock in spans, the server's monotonic clock
    in files. `responses` is None of a child, and where nothing was sent.
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
    responses: Responses | None = None

    @property
    def is_unanswered(self) -> bool:
        """True if it came over the network, and nothing was sent back."""
        return self.protocol != "" and self.total_seconds is None


@dataclass(frozen=True, slots=True)
class Identity:
    """Model, ids and role of a traced request."""

    model: str
    version: str
    request_id: str
    trace_id: str
    child: bool
    parent: str = ""
    """Trace id of the parent, for a child in a trace file."""


def shortened(text: str) -> str:
    """The first `MAX_TEXT_BYTES` bytes of a name or id, in whole characters.

    Raises:
        UnicodeEncodeError: it holds half a character.
    """
    encoded = text.encode()
    if len(encoded) <= MAX_TEXT_BYTES:
        return text
    return encoded[:MAX_TEXT_BYTES].decode("utf-8", "ignore")


def measured(
    whose: Identity, marks: Marks, *, network: bool = True
) -> RequestTrace | None:
    """The trace that Triton's marks describe; None if they describe none.

    They do not with an end before its begin, more than a day after, or missing: a file may
    have been cut. Without `network` the network's marks are missing, so the
    latency for the client is unknown.
    """
    protocol, begin, end = _span(whose, marks, network=network)
    if begin is None or marks.contradicted:
        return None
    last = end if end is not None else marks.get("REQUEST_END")
    if last is None or not 0 <= last - begin <= LONGEST_NS:
        return None
    answer = _answer(marks, protocol, begin, end)
    known = end is not None and (whose.child or protocol or not marks.of_the_network)
    return RequestTrace(
        whose.model,
        whose.version,
        whose.request_id,
        whose.trace_id,
        whose.child,
        protocol,
        marks.get("REQUEST_START") or begin,
        _phases(marks, (begin, last), answer),
        (last - begin) * 1e-9 if known else None,
        _responses(begin, answer),
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to a client's request, as far as its marks show it.

    `times` are those of its responses, sorted. `sending` is when the last one began to be
    sent. A `streamed` answer came more than once, or after
    the model had given the request back.
    """

    protocol: Protocol
    times: tuple[int, ...] = ()
    sending: int | None = None
    streamed: bool = False


def _span(
    whose: Identity, marks: Marks, *, network: bool
) -> tuple[Protocol, int | None, int | None]:
    """Protocol, begin and end of the time that counts."""
    if whose.child or not network:
        end = marks.get("REQUEST_END") if whose.child else None
        return "", marks.get("REQUEST_START"), end
    for name, protocol in _ARRIVAL:
        begin = marks.get(name)
        if begin is not None:
            return protocol, begin, _last_sent(marks, protocol, begin)
    return "", marks.get("REQUEST_START"), marks.get("REQUEST_END")


def _last_sent(marks: Marks, protocol: Protocol, begin: int) -> int | None:
    """Return when the last part of the answer was sent; None where it was not sent."""
    end = marks.get(SEND_END[protocol])
    if end is None:
        return None
    if end >= begin:
        # A client that cancels leaves the last response without its end.
        return max((end, *marks.each(SEND_START[protocol])[-1:]))
    if protocol == "http":
        complete = marks.each(COMPLETE)
        return complete[-1] if complete else None
    return end


def _answer(marks: Marks, protocol: Protocol, begin: int, end: int | None) -> _Answer:
    if not protocol or end is None:
        return _Answer(protocol)
    starts = marks.each(SEND_START[protocol])
    complete = marks.each(COMPLETE)
    sent = [ns for ns in starts if begin <= ns <= end]
    # A final flag without a response is complete, too, but not sent.
    times = sent or [ns for ns in complete[: len(starts)] if begin <= ns <= end]
    sending = sent[-1] if sent else None
    released = marks.get("REQUEST_END")
    late = bool(complete) and released is not None and complete[-1] > released
    return _Answer(protocol, tuple(times), sending, late or len(times) > 1)


def _responses(begin: int, answer: _Answer) -> Responses | None:
    if not answer.times:
        return None
    return Responses(
        len(answer.times),
        (answer.times[0] - begin) * 1e-9,
        tuple((after - before) * 1e-9 for before, after in pairwise(answer.times)),
    )


def _phases(
    marks: Marks, span: tuple[int, int], answer: _Answer
) -> tuple[float | None, ...]:
    """Divide the time of `span` at the marks, each clamped to it."""
    begin, end = span
    cuts = [marks.get(name) for name in COMPUTE]
    queued = _clip(cuts[0], begin, end)
    network_in = queued - begin if answer.protocol and cuts[0] is not None else None
    sending = answer.sending
    if None in cuts:
        network_out = None if sending is None else end - _clip(sending, queued, end)
        return (_seconds(network_in), None, None, None, None, _seconds(network_out))
    done = marks.get("COMPUTE_END") or end
    if answer.streamed:
        cuts[-1] = done = end if sending is None else sending
    elif sending is not None and sending >= (cuts[-1] or 0):
        done = min(done, sending)
    edges = [begin]
    for cut in (*cuts, done):
        edges.append(_clip(cut, edges[-1], end))
    inner = [(edges[i + 1] - edges[i]) * 1e-9 for i in range(1, len(edges) - 1)]
    network_out = None if sending is None else end - edges[-1]
    if answer.streamed:
        return (_seconds(network_in), *inner[:-1], None, _seconds(network_out))
    return (_seconds(network_in), *inner, _seconds(network_out))


def _clip(value: int | None, low: int, high: int) -> int:
    return low if value is None or value < low else min(value, high)


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds * 1e-9
