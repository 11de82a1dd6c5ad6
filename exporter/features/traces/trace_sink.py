"""Where every trace ends: histograms, windowed quantiles and exemplars by model.

What counts where: a client's request counts in the total and the phases of its model. A
child (asked by an ensemble or another model) counts in the phases only: its queue and
compute are real work of that model, but no client waited for its total, which is part of
its parent's. A request whose begin or end on the network is unknown does likewise. Our
own requests, and the children of them, count nowhere.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter import catalogue
from exporter.access.own_traffic import REQUEST_ID_PREFIX
from exporter.features.traces.traced_request import PHASES
from exporter.histograms.histogram import Histogram
from exporter.histograms.process_quantiles import process_quantiles
from exporter.histograms.windowed_histogram import WindowedHistogram
from exporter.samples import Exemplar, HistogramSample, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.features.traces.traced_request import RequestTrace
    from exporter.samples import AnySample

OUTCOMES: Final[tuple[str, ...]] = (
    "request",
    "child",
    "partial",
    "own",
    "filtered",
    "unknown_model",
    "invalid",
    "malformed",
    "duplicate",
    "orphan",
)
"""What becomes of a record; the first three are in the histograms."""
WINDOW_SLOTS: Final = 30
FORGET_SECONDS: Final = 3600.0
REMEMBERED: Final = 32_768
"""Most traces of which a second copy is recognised; at least the latest half of it."""
_TRACE_ID_CHARS: Final = 32


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """What a sink keeps. `models` of unknown name are kept up to `unknown_models`."""

    window_seconds: float
    unknown_models: int
    sources: tuple[str, ...]


@dataclass(slots=True)
class _Model:
    window: WindowedHistogram
    total: Histogram = field(default_factory=Histogram)
    phases: dict[str, Histogram] = field(default_factory=dict)
    exemplars: dict[int, Exemplar] = field(default_factory=dict)
    latest: float = 0.0


class TraceSink:
    """Takes traces from any number of threads; everything it holds is bounded.

    Args:
        settings: window, budget and the names of the sources.
        known: (model, version) of what the server holds now.
        wanted: whether a model of this name is to be looked at.
        wall_clock: seconds since the epoch, for exemplars.
    """

    def __init__(
        self,
        settings: SinkSettings,
        *,
        known: Callable[[], Collection[ModelKey]],
        wanted: Callable[[str], bool],
        wall_clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._known = known
        self._wanted = wanted
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

    def counted(self, source: str, outcome: str) -> int:
        """How many records had this outcome so far."""
        with self._lock:
            return self._outcomes[source][outcome]

    def add(self, source: str, traces: Iterable[RequestTrace], now: float) -> None:
        """Count a batch of traces; `now` is monotonic seconds."""
        batches: dict[ModelKey, list[RequestTrace]] = {}
        known = self._known()
        with self._lock:
            outcomes = self._outcomes[source]
            for trace in traces:
                if self._is_copy(trace):
                    outcomes["duplicate"] += 1
                elif trace.request_id.startswith(REQUEST_ID_PREFIX):
                    outcomes["own"] += 1
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
                    model = self._models[key] = self._new_model()
                model.latest = now
                outcomes.update(_record(model, batch, now, self._wall_clock()))

    def samples(self, now: float) -> list[AnySample]:
        """Every series; a window that is empty says nothing."""
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

    def _new_model(self) -> _Model:
        return _Model(WindowedHistogram(self._settings.window_seconds, WINDOW_SLOTS))

    def _forget(self, now: float) -> None:
        known = self._known()
        for key in [
            key
            for key, model in self._models.items()
            if key not in known and now - model.latest > FORGET_SECONDS
        ]:
            del self._models[key]


def _record(
    model: _Model, batch: Sequence[RequestTrace], now: float, wall_now: float
) -> Counter[str]:
    requests = [t for t in batch if t.total_seconds is not None and not t.child]
    children = sum(trace.child for trace in batch)
    totals = np.array([trace.total_seconds for trace in requests], np.float64)
    if totals.size:
        model.total.record_many(totals)
        model.window.record_many(totals, now)
        _exemplify(model, requests, totals, wall_now)
    for name, values in zip(
        PHASES, zip(*(t.phases for t in batch), strict=True), strict=True
    ):
        present = [value for value in values if value is not None]
        if present:
            model.phases.setdefault(name, Histogram()).record_many(present)
    return Counter(
        request=len(requests),
        child=children,
        partial=len(batch) - len(requests) - children,
    )


def _exemplify(
    model: _Model,
    requests: Sequence[RequestTrace],
    totals: np.ndarray[tuple[int], np.dtype[np.float64]],
    wall_now: float,
) -> None:
    """The latest request of each bucket stands for it."""
    places = np.searchsorted(catalogue.REQUEST_DURATION.buckets, totals).tolist()
    for place, index in {place: i for i, place in enumerate(places)}.items():
        trace_id = requests[index].trace_id
        if (
            0 < len(trace_id) <= _TRACE_ID_CHARS
            and trace_id.isascii()
            and trace_id.isalnum()
        ):
            model.exemplars[place] = Exemplar(
                float(totals[index]), wall_now, {"trace_id": trace_id}
            )


def _of_model(key: ModelKey, model: _Model, now: float) -> Iterator[AnySample]:
    if model.total.count:
        yield HistogramSample(
            catalogue.REQUEST_DURATION,
            model.total.copy(),
            key,
            tuple(model.exemplars.values()),
        )
    for phase, histogram in model.phases.items():
        yield HistogramSample(
            catalogue.REQUEST_PHASE_DURATION, histogram.copy(), (*key, phase)
        )
    yield from quantile_samples(key, model.window.slots(now))


def quantile_samples(
    labels: tuple[str, ...], slots: Sequence[Histogram]
) -> Iterator[Sample]:
    """Quantiles that the count carries, with the interval of the process and its basis."""
    for found in process_quantiles(slots, catalogue.QUANTILES):
        named = (*labels, str(found.q))
        yield Sample(catalogue.REQUEST_LATENCY, found.value, named)
        yield Sample(
            catalogue.REQUEST_LATENCY_EFFECTIVE, found.effective_samples, named
        )
        for bound, limit in zip(("lower", "upper"), found.interval or (), strict=False):
            yield Sample(catalogue.REQUEST_LATENCY_CI, limit, (*named, bound))
