"""Triton's OpenTelemetry spans joined to requests.

Triton makes three kinds of spans for a request, children first:

    InferRequest              the network's marks
    └── <model>               who, and the scheduler's marks
        ├── compute           the backend's marks; none on a cache hit or an ensemble
        └── <model> …         what an ensemble or BLS model asked of others

They usually come together, but a batch may end between two of them and a collector in
between may reorder them. What waits for its other part waits a limited time in a buffer
of limited size; what leaves it unfinished is measured as far as it goes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from exporter.traces.model import Identity, RequestTrace, measured

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Marks = dict[str, int]

Part = Literal["network", "model", "compute"]

JOIN_SECONDS: Final = 15.0
"""Triton sends every 5 s; two parts of a request are at most two batches apart."""
MAX_WAITING: Final = 20_000


@dataclass(frozen=True, slots=True)
class Span:
    """What is needed of one span. `identity` is set for a model's span only."""

    part: Part
    span_id: str
    parent_id: str
    marks: Mapping[str, int]
    identity: Identity | None = None


@dataclass(slots=True)
class _Request:
    identity: Identity
    network_id: str
    marks: Marks
    since: float
    has_network: bool = False
    has_compute: bool = False
    has_children: bool = False

    @property
    def complete(self) -> bool:
        return (self.has_network or self.identity.child) and (
            self.has_compute or self.has_children
        )


@dataclass(frozen=True, slots=True)
class Joined:
    """Traces that are done, and how many spans led to none."""

    traces: list[RequestTrace] = field(default_factory=list)
    invalid: int = 0
    orphans: int = 0


class SpanJoiner:
    """Buffers spans until their request is whole. Not thread-safe."""

    def __init__(
        self, *, join_seconds: float = JOIN_SECONDS, max_waiting: int = MAX_WAITING
    ) -> None:
        self._join_seconds = join_seconds
        self._max_waiting = max_waiting
        self._requests: OrderedDict[str, _Request] = OrderedDict()
        self._by_network: dict[str, str] = {}
        # Parts whose request has not come: by the span id the request must name.
        self._networks: OrderedDict[str, tuple[float, Mapping[str, int]]] = (
            OrderedDict()
        )
        self._computes: OrderedDict[str, tuple[float, Mapping[str, int]]] = (
            OrderedDict()
        )
        self._parents: OrderedDict[str, float] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Spans in the buffer."""
        return len(self._requests) + len(self._networks) + len(self._computes)

    def add(self, spans: Iterable[Span], now: float) -> Joined:
        """Take spans in; what they complete comes out. `now` is monotonic seconds."""
        done: list[_Request] = []
        for span in spans:
            request = self._take(span, now)
            if request is not None and request.complete:
                self._remove(span, request)
                done.append(request)
        return self._joined([*done, *self._overdue(now)], self._orphans(now))

    def expire(self, now: float) -> Joined:
        """Give up on what has waited long enough."""
        return self._joined(self._overdue(now), self._orphans(now))

    def _take(self, span: Span, now: float) -> _Request | None:
        if span.part == "compute":
            return self._compute(span, now)
        if span.part == "network":
            return self._network(span, now)
        return self._model(span, now)

    def _compute(self, span: Span, now: float) -> _Request | None:
        request = self._requests.get(span.parent_id)
        if request is None:
            self._computes[span.parent_id] = (now, span.marks)
            return None
        request.marks.update(span.marks)
        request.has_compute = True
        return request

    def _network(self, span: Span, now: float) -> _Request | None:
        key = self._by_network.get(span.span_id)
        request = self._requests.get(key) if key is not None else None
        if request is None:
            self._networks[span.span_id] = (now, span.marks)
            return None
        request.marks.update(span.marks)
        request.has_network = True
        return request

    def _model(self, span: Span, now: float) -> _Request | None:
        identity = span.identity
        if identity is None or span.span_id in self._requests:
            return None
        request = _Request(identity, span.parent_id, dict(span.marks), now)
        compute = self._computes.pop(span.span_id, None)
        if compute is not None:
            request.marks.update(compute[1])
            request.has_compute = True
        request.has_children = self._parents.pop(span.span_id, None) is not None
        if identity.child:
            self._announce(span.parent_id, now)
        else:
            network = self._networks.pop(span.parent_id, None)
            if network is not None:
                request.marks.update(network[1])
                request.has_network = True
            self._by_network[span.parent_id] = span.span_id
        self._requests[span.span_id] = request
        return request

    def _announce(self, parent_id: str, now: float) -> None:
        """A child came: its parent needs no compute of its own to be complete."""
        parent = self._requests.get(parent_id)
        if parent is not None:
            parent.has_children = True
        else:
            self._parents[parent_id] = now

    def _remove(self, span: Span, request: _Request) -> None:
        if span.part == "compute":
            key = span.parent_id
        elif span.part == "network":
            key = self._by_network[span.span_id]
        else:
            key = span.span_id
        del self._requests[key]
        self._forget_network(key, request)

    def _forget_network(self, key: str, request: _Request) -> None:
        if self._by_network.get(request.network_id) == key:
            del self._by_network[request.network_id]

    def _overdue(self, now: float) -> list[_Request]:
        late: list[_Request] = []
        while self._requests:
            key, request = next(iter(self._requests.items()))
            fresh = now - request.since < self._join_seconds
            if fresh and len(self._requests) <= self._max_waiting:
                break
            del self._requests[key]
            self._forget_network(key, request)
            late.append(request)
        return late

    def _orphans(self, now: float) -> int:
        dropped = 0
        for parts in (self._networks, self._computes):
            while parts:
                key, (since, _) = next(iter(parts.items()))
                if now - since < self._join_seconds and len(parts) <= self._max_waiting:
                    break
                del parts[key]
                dropped += 1
        while self._parents and (
            len(self._parents) > self._max_waiting
            or now - next(iter(self._parents.values())) >= self._join_seconds
        ):
            self._parents.popitem(last=False)
        return dropped

    def _joined(self, requests: list[_Request], orphans: int) -> Joined:
        traces = list(_measured(requests))
        return Joined(traces, len(requests) - len(traces), orphans)


def _measured(requests: Iterable[_Request]) -> Iterator[RequestTrace]:
    for request in requests:
        marks: Mapping[str, int] = request.marks
        if not request.has_network and not request.identity.child:
            # Its network span never came: what the client waited cannot be said. A
            # mark without its end keeps the total absent and the phases true.
            marks = {**marks, "GRPC_WAITREAD_END": marks.get("REQUEST_START", 0)}
            marks.pop("GRPC_SEND_END", None)
        trace = measured(request.identity, marks)
        if trace is not None:
            yield trace
