"""Triton's OpenTelemetry spans joined to requests.

Triton makes three kinds of spans for a request, children first:

    InferRequest              the network's marks
    └── <model>               who, and the scheduler's marks
        ├── compute           the backend's marks; none on a cache hit or an ensemble
        └── <model> …         what an ensemble or BLS model asked of others

They usually come together, but a batch may end between two of them and a collector in
between may reorder them. The span of a model that streams comes when it has taken the
request, and the network's with the last response. What waits for its other part waits a
limited time in a buffer of limited size, which senders share; what leaves it unfinished is
measured as far as it goes. Models that the server does not hold have a small buffer of their
own and a short time, so that spans of invented names never displace those of a stream.

A child waits for the client's request of its trace too: where that is one of ours, so is
the child, whatever id it has itself.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from exporter.access.own_traffic import REQUEST_ID_PREFIX
from exporter.features.traces.fair_buffer import FairBuffer
from exporter.features.traces.traced_request import (
    Identity,
    Marks,
    RequestTrace,
    measured,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from exporter.access.inventory import ModelKey

Part = Literal["network", "model", "compute"]

JOIN_SECONDS: Final = 15.0
"""Triton sends every 5 s; two parts that end together are at most two batches apart."""
ANSWER_SECONDS: Final = 900.0
"""A streamed answer may take so long, and its network span comes at its end."""
MAX_WAITING_BYTES: Final = 8 << 20
"""Limit of requests that wait; everything else together takes less than as much. Python
returns little of it to the kernel afterwards, so it is small: 4,500 requests with short
names."""
_ENTRY_BYTES: Final = 450
"""Measured size of a request that waits, or a part of one, without its names and marks."""
_NOTE_BYTES: Final = 300
"""Measured size of an entry that only notes an id."""
_TYPICAL_BYTES: Final = 500
"""Typical size of a request's marks; its parts add theirs."""


@dataclass(frozen=True, slots=True)
class Span:
    """The parts of a span that are used. `identity` is set for a model's span only."""

    part: Part
    span_id: str
    parent_id: str
    marks: Marks
    identity: Identity | None = None


@dataclass(slots=True)
class _Request:
    identity: Identity
    network_id: str
    marks: Marks
    sender: str
    """The sender of its model's span."""
    has_network: bool = False
    has_compute: bool = False
    is_known: bool = True
    """True if the server holds its model."""
    is_ensemble: bool = False
    """True if it has no compute of its own."""

    @property
    def complete(self) -> bool:
        return (self.has_network or self.identity.child) and (
            self.has_compute or self.is_ensemble
        )


@dataclass(frozen=True, slots=True)
class Joined:
    """Traces that are done, and how many spans led to none."""

    traces: list[RequestTrace] = field(default_factory=list)
    invalid: int = 0
    orphans: int = 0


class SpanJoiner:
    """Buffers spans until their request is whole. Not thread-safe.

    `is_known` returns whether the server holds a model version, `is_ensemble` whether that
    is an ensemble.
    """

    def __init__(
        self,
        *,
        is_known: Callable[[ModelKey], bool] = lambda _: True,
        is_ensemble: Callable[[ModelKey], bool] = lambda _: False,
        join_seconds: float = JOIN_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        max_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        self._is_known = is_known
        self._is_ensemble = is_ensemble
        # Requests that wait for the network's span, or for their client's request; those
        # that were answered and wait for a span that ended before; those to models that
        # the server does not hold.
        self._requests = FairBuffer[_Request](answer_seconds, max_bytes)
        self._answered = FairBuffer[_Request](join_seconds, max_bytes // 4)
        self._unknown = FairBuffer[_Request](join_seconds, max_bytes // 8)
        self._stores = (self._requests, self._answered, self._unknown)
        self._by_network: dict[str, str] = {}
        # Parts whose request has not come: by the span id the request must name.
        self._networks = FairBuffer[Marks](join_seconds, max_bytes // 8)
        self._computes = FairBuffer[Marks](join_seconds, max_bytes // 4)
        # Traces whose client's request came: with our ids, and "" for a client's. Calls
        # that come later are then known, also those that a collector sends again.
        self._own = FairBuffer[str](answer_seconds, max_bytes // 16)
        self._clients = FairBuffer[str](answer_seconds, max_bytes // 8)
        # Children that are complete but for the client's request, by trace.
        self._children: dict[str, set[str]] = {}

    @property
    def waiting(self) -> int:
        """Spans in the buffer."""
        requests = sum(map(len, self._stores))
        return requests + len(self._networks) + len(self._computes)

    def add(self, spans: Iterable[Span], now: float, sender: str = "") -> Joined:
        """Add spans of one sender; return the requests that they complete.

        `now` is monotonic seconds.
        """
        spans = tuple(spans)
        roots = self._roots(spans, now, sender)
        done = self._awaited_children(roots)
        for span in spans:
            request = self._assign(span, now, sender)
            if request is None or not request.complete:
                continue
            whose, key = request.identity, self._key(span)
            if whose.child and not self._is_caused(whose.trace_id, roots):
                self._children.setdefault(whose.trace_id, set()).add(key)
                continue
            self._pop(key)
            self._forget_network(key, request)
            done.append(request)
        done = self._attributed([*done, *self._overdue(now)])
        return self._joined(done, self._orphans(now))

    def expire(self, now: float) -> Joined:
        """Return and remove the requests that waited long enough."""
        late = self._attributed(self._overdue(now))
        return self._joined(late, self._orphans(now))

    def _roots(self, spans: Iterable[Span], now: float, sender: str) -> set[str]:
        """Return the traces whose client's request is among `spans`, and remember them."""
        roots: set[str] = set()
        for span in spans:
            whose = span.identity
            if whose is None or whose.child:
                continue
            roots.add(whose.trace_id)
            is_own = whose.request_id.startswith(REQUEST_ID_PREFIX)
            request_id = whose.request_id if is_own else ""
            size = _NOTE_BYTES + _size_of_texts(whose.trace_id, request_id)
            buffer = self._own if is_own else self._clients
            buffer.put(whose.trace_id, request_id, size, now, sender)
        return roots

    def _is_caused(self, trace_id: str, roots: set[str]) -> bool:
        """Return whether the client's request of this trace has come."""
        buffers = (self._own, self._clients)
        return trace_id in roots or any(b.get(trace_id) is not None for b in buffers)

    def _awaited_children(self, roots: Iterable[str]) -> list[_Request]:
        """Children that waited for these client's requests alone."""
        found = [
            self._pop(key) for root in roots for key in self._children.pop(root, ())
        ]
        return [request for request in found if request is not None]

    def _assign(self, span: Span, now: float, sender: str) -> _Request | None:
        if span.part == "compute":
            return self._compute(span, now, sender)
        if span.part == "network":
            return self._network(span, now, sender)
        return self._model(span, now, sender)

    def _compute(self, span: Span, now: float, sender: str) -> _Request | None:
        request = self._held(span.parent_id)
        if request is None:
            self._computes.put(span.parent_id, span.marks, _size(span), now, sender)
            return None
        request.marks.update(span.marks)
        request.has_compute = True
        for store in self._stores:
            store.resize(span.parent_id, _size_of(span.parent_id, request))
        return request

    def _network(self, span: Span, now: float, sender: str) -> _Request | None:
        key = self._by_network.get(span.span_id, "")
        request = self._held(key)
        if request is None:
            self._networks.put(span.span_id, span.marks, _size(span), now, sender)
        elif not request.has_network:
            request.marks.update(span.marks)
            request.has_network = True
            self._pop(key)
            self._store(key, request, now)
        return request

    def _model(self, span: Span, now: float, sender: str) -> _Request | None:
        identity = span.identity
        if identity is None or self._held(span.span_id) is not None:
            return None
        key = identity.model, identity.version
        request = _Request(identity, span.parent_id, Marks(), sender)
        request.is_known = self._is_known(key)
        request.is_ensemble = self._is_ensemble(key)
        request.marks.update(span.marks)
        compute = self._computes.pop(span.span_id)
        if compute is not None:
            request.marks.update(compute)
            request.has_compute = True
        if not identity.child:
            network = self._networks.pop(span.parent_id)
            if network is not None:
                request.marks.update(network)
                request.has_network = True
            self._by_network[span.parent_id] = span.span_id
        self._store(span.span_id, request, now)
        return request

    def _store(self, key: str, request: _Request, now: float) -> None:
        store = self._answered if request.has_network else self._requests
        if not request.is_known:
            store = self._unknown
        store.put(key, request, _size_of(key, request), now, request.sender)

    def _pop(self, key: str) -> _Request | None:
        found = [store.pop(key) for store in self._stores]
        return next(filter(None, found), None)

    def _held(self, key: str) -> _Request | None:
        found = (store.get(key) for store in self._stores)
        return next(filter(None, found), None)

    def _key(self, span: Span) -> str:
        """Return the key of the request that the span is a part of."""
        if span.part == "compute":
            return span.parent_id
        if span.part == "network":
            return self._by_network[span.span_id]
        return span.span_id

    def _forget_network(self, key: str, request: _Request) -> None:
        if self._by_network.get(request.network_id) == key:
            del self._by_network[request.network_id]

    def _forget_child(self, key: str, request: _Request) -> None:
        waiting = self._children.get(request.identity.trace_id, set())
        waiting.discard(key)
        if not waiting:
            self._children.pop(request.identity.trace_id, None)

    def _overdue(self, now: float) -> list[_Request]:
        late: list[_Request] = []
        for store in self._stores:
            for key, request in store.overdue(now):
                if self._was_loaded(request):
                    self._store(key, request, now)
                    continue
                self._forget_network(key, request)
                self._forget_child(key, request)
                late.append(request)
        return late

    def _was_loaded(self, request: _Request) -> bool:
        """Return whether the server holds this model now, and did not when it came."""
        whose = request.identity
        if request.is_known or not self._is_known((whose.model, whose.version)):
            return False
        request.is_known = True
        return True

    def _attributed(self, requests: list[_Request]) -> list[_Request]:
        """The same, children of our requests with the ids of these."""
        for request in requests:
            own = self._own.get(request.identity.trace_id)
            if own is not None and request.identity.child:
                request.identity = replace(request.identity, request_id=own)
        return requests

    def _orphans(self, now: float) -> int:
        for known in (self._own, self._clients):
            for _ in known.overdue(now):
                pass
        return sum(
            1 for parts in (self._networks, self._computes) for _ in parts.overdue(now)
        )

    def _joined(self, requests: list[_Request], orphans: int) -> Joined:
        found = (
            measured(request.identity, request.marks, network=request.has_network)
            for request in requests
        )
        traces = [trace for trace in found if trace is not None]
        return Joined(traces, len(requests) - len(traces), orphans)


def _size(span: Span) -> int:
    """About how many bytes a part takes while it waits for its request."""
    return (
        _ENTRY_BYTES
        + max(span.marks.size_bytes, _TYPICAL_BYTES)
        + _size_of_texts(span.span_id, span.parent_id)
    )


def _size_of(key: str, request: _Request) -> int:
    """About how many bytes a request takes while it waits, with what leads to it."""
    whose = request.identity
    texts = (key, request.network_id, whose.model, whose.request_id, whose.trace_id)
    return (
        _ENTRY_BYTES
        + _NOTE_BYTES
        + max(request.marks.size_bytes, _TYPICAL_BYTES)
        + _size_of_texts(*texts)
    )


def _size_of_texts(*texts: str) -> int:
    return sum(map(sys.getsizeof, texts))
