"""Destination of all traces: histograms, windowed quantiles and exemplars by model.

A client's request counts in the total and the phases of its model. A child (requested by
an ensemble or another model) counts in the phases only: its queue and compute are real
work of that model, but no client waited for its total, which is part of its parent's. A
request whose begin or end on the network is unknown does likewise. Of a request to a
decoupled model, or with several responses, its responses count, too; of those with several,
also when the first came. Our own requests, and their children, are not counted.

A decoupled model may return a request as soon as it has accepted it. Where the network's
marks do not show when it had answered, its compute time is unknown.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from pydantic import Field, model_validator

from exporter import catalogue
from exporter.access.own_traffic import REQUEST_ID_PREFIX, is_of_run
from exporter.access.work_board import KnownTokens
from exporter.features.traces.traced_latency import (
    FIRST_RESPONSE,
    REQUEST,
    RESPONSE_GAP,
    Moment,
    TracedLatency,
)
from exporter.features.traces.traced_request import PHASES
from exporter.histograms.histogram import Histogram
from exporter.samples import HistogramSample, Sample
from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from exporter.access.inventory import ModelKey
    from exporter.features.traces.traced_request import RequestTrace, Responses
    from exporter.samples import AnySample


# Goodput is the rate of requests that meet the objectives on the first token and on the
# time per token both (Zhong et al., DistServe, OSDI 2024).
class RequestLimits(Settings):
    """Limits that a client's request has to meet all at once.

    An answer in a single response may be a whole text that was not streamed: it is judged
    by `total_seconds` alone, and does not count without that limit.
    """

    models: str = Field(default="*", max_length=200)
    """Shell-style pattern of the models whose requests count."""
    first_response_seconds: float | None = Field(default=None, gt=0, le=3600)
    """Longest time until the first response."""
    mean_gap_seconds: float | None = Field(default=None, gt=0, le=3600)
    """Longest mean time from one response to the next, which is the time per output
    token if each response is one token."""
    total_seconds: float | None = Field(default=None, gt=0, le=86_400)
    """Longest time until the last response."""

    @model_validator(mode="after")
    def _some(self) -> RequestLimits:
        limits = (
            self.first_response_seconds,
            self.mean_gap_seconds,
            self.total_seconds,
        )
        if limits == (None, None, None):
            raise ValueError(
                "found no limit; set at least one of first_response_seconds, "
                "mean_gap_seconds and total_seconds"
            )
        return self

    def matches(self, model: str) -> bool:
        """Return whether requests to `model` are judged."""
        return fnmatchcase(model, self.models)

    def met(self, total_seconds: float, responses: Responses | None) -> bool | None:
        """Return whether a request met all of them; one without a response does not.

        None if no limit applies: to a single response only that on the total does.
        """
        if responses is None:
            return False
        pairs = [(self.total_seconds, total_seconds)]
        if responses.number > 1:
            gaps = responses.gaps
            pairs.append((self.first_response_seconds, responses.first_seconds))
            pairs.append((self.mean_gap_seconds, sum(gaps) / max(len(gaps), 1)))
        kept = [seconds <= limit for limit, seconds in pairs if limit is not None]
        return all(kept) if kept else None


OUTCOMES: Final[tuple[str, ...]] = (
    "request",
    "child",
    "partial",
    "own",
    "watcher",
    "filtered",
    "unknown_model",
    "invalid",
    "malformed",
    "duplicate",
    "orphan",
    "foreign",
)
"""Outcomes of a record; the first three are in the histograms."""
FORGET_SECONDS: Final = 3600.0
REMEMBERED: Final = 32_768
"""Number of traces whose copies are recognised; at least the latest half of it."""
_COMPUTE_INFER: Final = PHASES.index("compute_infer")
_NETWORK_OUT: Final = PHASES.index("network_out")


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Limits of a sink. `models` of unknown name are kept up to `unknown_models`."""

    window_seconds: float
    unknown_models: int
    sources: tuple[str, ...]
    run_id: str
    """Part of the ids of our own requests."""
    token_responses: tuple[str, ...] = ()
    """Patterns of models whose responses are one token each."""
    limits: Mapping[str, RequestLimits] = field(default_factory=dict)
    """Limits of goodput, by name."""


@dataclass(slots=True)
class _Goodput:
    """Requests that met limits, and that did not."""

    name: str
    limits: RequestLimits
    met: int = 0
    missed: int = 0


@dataclass(slots=True)
class _Model:
    request: TracedLatency
    first_response: TracedLatency
    response_gap: TracedLatency
    is_one_token: bool
    """True if each of its responses is one token."""
    responses: Histogram = field(default_factory=Histogram)
    unanswered: int = 0
    time_per_token: Histogram = field(default_factory=Histogram)
    phases: dict[str, Histogram] = field(default_factory=dict)
    goodput: tuple[_Goodput, ...] = ()
    latest: float = 0.0


class TraceSink:
    """Collects traces from any number of threads, in bounded memory.

    Args:
        settings: window, budget and the names of the sources.
        known: (model, version) of what the server holds now.
        wanted: whether models of this name are observed.
        decoupled: whether this (model, version) is known to answer any number of times.
        wall_clock: seconds since the epoch, for exemplars.
    """

    def __init__(
        self,
        settings: SinkSettings,
        *,
        known: Callable[[], Collection[ModelKey]],
        wanted: Callable[[str], bool],
        decoupled: Callable[[ModelKey], bool],
        wall_clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._known = known
        self._wanted = wanted
        self._decoupled = decoupled
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._models: dict[ModelKey, _Model] = {}
        # The newer half and the older half of what is remembered.
        self._seen: set[int] = set()
        self._seen_before: set[int] = set()
        self._outcomes: dict[str, Counter[str]] = {
            source: Counter(dict.fromkeys(OUTCOMES, 0)) for source in settings.sources
        }

    def count(self, source: str, outcome: str, number: int = 1) -> None:
        """Records that led to no trace."""
        if number:
            with self._lock:
                self._outcomes[source][outcome] += number

    def is_known(self, key: ModelKey) -> bool:
        """Return whether the server holds this model version now."""
        return key in self._known()

    def add(self, source: str, traces: Iterable[RequestTrace], now: float) -> None:
        """Count a batch of traces; `now` is monotonic seconds."""
        batches: dict[ModelKey, list[RequestTrace]] = {}
        known = self._known()
        at = Moment(now, self._wall_clock())
        with self._lock:
            outcomes = self._outcomes[source]
            for trace in traces:
                if self._is_copy(trace):
                    outcomes["duplicate"] += 1
                elif trace.request_id.startswith(REQUEST_ID_PREFIX):
                    is_ours = is_of_run(trace.request_id, self._settings.run_id)
                    outcomes["own" if is_ours else "watcher"] += 1
                else:
                    batches.setdefault((trace.model, trace.version), []).append(trace)
            strangers = sum(held not in known for held in self._models)
            for key, batch in batches.items():
                if not self._wanted(key[0]):
                    outcomes["filtered"] += len(batch)
                    continue
                model = self._models.get(key)
                if model is None:
                    strange = key not in known
                    if strange and strangers >= self._settings.unknown_models:
                        outcomes["unknown_model"] += len(batch)
                        continue
                    strangers += strange
                    model = self._models[key] = self._new_model(key[0])
                model.latest = now
                decoupled = self._decoupled(key)
                outcomes.update(_record(model, batch, at, decoupled=decoupled))

    def samples(self, now: float) -> list[AnySample]:
        """Return every series; an empty window has none."""
        with self._lock:
            self._forget(now)
            samples: list[AnySample] = [
                Sample(catalogue.TRACE_RECORDS, number, (source, outcome))
                for source, outcomes in self._outcomes.items()
                for outcome, number in outcomes.items()
            ]
            for key, model in self._models.items():
                samples += _of_model(key, model, now)
        return samples

    def _is_copy(self, trace: RequestTrace) -> bool:
        """A sender may repeat itself, a file may be found again under another name."""
        mark = hash((trace.trace_id, trace.begin_ns, trace.model, trace.child))
        if mark in self._seen or mark in self._seen_before:
            return True
        self._seen.add(mark)
        if len(self._seen) >= REMEMBERED // 2:
            self._seen, self._seen_before = set(), self._seen
        return False

    def token_responses(self) -> dict[ModelKey, KnownTokens]:
        """Return requests and responses of models whose responses are tokens.

        Models that the server holds are in it before their first trace, too.
        """
        found = {
            key: KnownTokens(0, 0)
            for key in self._known()
            if self._is_one_token(key[0])
        }
        with self._lock:
            for key, model in self._models.items():
                if model.is_one_token:
                    sent = model.responses
                    requests = sent.count + model.unanswered
                    found[key] = KnownTokens(requests, round(sent.sum))
        return found

    def _is_one_token(self, name: str) -> bool:
        return any(fnmatchcase(name, one) for one in self._settings.token_responses)

    def _new_model(self, name: str) -> _Model:
        seconds = self._settings.window_seconds
        return _Model(
            TracedLatency(REQUEST, seconds),
            TracedLatency(FIRST_RESPONSE, seconds),
            TracedLatency(RESPONSE_GAP, seconds),
            self._is_one_token(name),
            goodput=tuple(
                _Goodput(limits_name, limits)
                for limits_name, limits in self._settings.limits.items()
                if limits.matches(name)
            ),
        )

    def _forget(self, now: float) -> None:
        known = self._known()
        for key in [
            key
            for key, model in self._models.items()
            if key not in known and now - model.latest > FORGET_SECONDS
        ]:
            del self._models[key]


def _record(
    model: _Model, batch: Sequence[RequestTrace], at: Moment, *, decoupled: bool
) -> Counter[str]:
    children = sum(trace.child for trace in batch)
    totals = [
        (trace.total_seconds, trace.trace_id)
        for trace in batch
        if trace.total_seconds is not None and not trace.child
    ]
    model.request.record(totals, at)
    unanswered = sum(trace.is_unanswered for trace in batch)
    model.unanswered += unanswered
    for goodput in model.goodput:
        met = [
            goodput.limits.met(trace.total_seconds, trace.responses)
            for trace in batch
            if trace.total_seconds is not None and not trace.child
        ]
        goodput.met += met.count(True)
        goodput.missed += met.count(False) + unanswered
    streams = [
        (trace.responses, trace.trace_id)
        for trace in batch
        if trace.responses is not None and (decoupled or trace.responses.number > 1)
    ]
    # A single response may be a whole answer, which `/generate` sends when it is ready.
    firsts = [(r.first_seconds, who) for r, who in streams if r.number > 1]
    model.first_response.record(firsts, at)
    model.response_gap.record([(gap, who) for r, who in streams for gap in r.gaps], at)
    model.responses.record_many([r.number for r, _ in streams])
    if model.is_one_token:
        means = [sum(r.gaps) / len(r.gaps) for r, _ in streams if r.gaps]
        model.time_per_token.record_many(means)
    known = [_known_phases(trace, decoupled=decoupled) for trace in batch]
    for name, values in zip(PHASES, zip(*known, strict=True), strict=True):
        present = [value for value in values if value is not None]
        if present:
            model.phases.setdefault(name, Histogram()).record_many(present)
    return Counter(
        request=len(totals),
        child=children,
        partial=len(batch) - len(totals) - children,
    )


def _known_phases(trace: RequestTrace, *, decoupled: bool) -> tuple[float | None, ...]:
    if not decoupled or trace.responses is not None:
        return trace.phases
    before, after = trace.phases[:_COMPUTE_INFER], trace.phases[_NETWORK_OUT:]
    return (*before, None, None, *after)


def _of_model(key: ModelKey, model: _Model, now: float) -> Iterator[AnySample]:
    for latency in (model.request, model.first_response, model.response_gap):
        yield from latency.samples(key, now)
    if model.responses.count:
        yield HistogramSample(catalogue.RESPONSES, model.responses.copy(), key)
    if model.time_per_token.count:
        times = model.time_per_token.copy()
        yield HistogramSample(catalogue.TIME_PER_TOKEN, times, key)
    for goodput in model.goodput:
        for outcome, number in (("met", goodput.met), ("missed", goodput.missed)):
            labels = (*key, goodput.name, outcome)
            yield Sample(catalogue.REQUEST_GOODPUT, number, labels)
    for phase, histogram in model.phases.items():
        yield HistogramSample(
            catalogue.REQUEST_PHASE_DURATION, histogram.copy(), (*key, phase)
        )
