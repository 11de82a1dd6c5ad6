"""Counts good and bad events of one objective in exposed samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter import catalogue
from exporter.catalogue import probe_outcomes
from exporter.features.slo.objectives import (
    AvailabilityObjective,
    GoodputObjective,
    LatencyObjective,
    SignalObjective,
)
from exporter.samples import HistogramSample, Sample, labels_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from exporter.features.slo.objectives import Objective
    from exporter.samples import AnySample

CountedObjective = LatencyObjective | AvailabilityObjective | GoodputObjective
Series = tuple[str, ...]
"""Label values of one source series."""
_JUDGED: Final = {
    "requests": (catalogue.REQUESTS, frozenset({"success"})),
    "access_log": (catalogue.CLIENT_REQUESTS, frozenset({"success"})),
    "probes": (catalogue.PROBE_TOTAL, probe_outcomes.GOOD),
}
"""The metric of an availability objective by source, and its good outcomes."""
_TIMED: Final = {
    ("latency", "requests"): catalogue.REQUEST_DURATION,
    ("latency", "probes"): catalogue.PROBE_DURATION,
    ("first_response", "requests"): catalogue.FIRST_RESPONSE,
    ("first_response", "probes"): catalogue.PROBE_FIRST_RESPONSE,
    ("response_gap", "requests"): catalogue.RESPONSE_GAP,
    ("response_gap", "probes"): catalogue.PROBE_RESPONSE_GAP,
}
"""The metric of a latency objective, by kind and source."""
_UNJUDGED: Final = probe_outcomes.UNJUDGED | {"abandoned"}
"""Outcomes that are neither good nor bad: no answer, or one that shows nothing."""


class EventCounter:
    """Good and bad events of one objective since the start, counter resets survived."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.good = 0.0
        self.bad = 0.0
        # Of each series its good and bad events; of a signal its value, and when it was read.
        self._before: dict[Series, tuple[float, float]] = {}
        # True if the previous observation was complete, so that its series are known.
        self._source_read = False

    def add(self, samples: Iterable[AnySample], now: float) -> None:
        """Count the events of the samples exposed now; `now` is monotonic seconds."""
        samples = list(samples)
        if isinstance(self.objective, SignalObjective):
            self._add_signal(self.objective, samples, now)
        else:
            self._add_totals(self.objective, samples)

    def _add_totals(
        self,
        objective: CountedObjective,
        samples: Sequence[AnySample],
    ) -> None:
        source = (
            _latencies(objective, samples)
            if isinstance(objective, LatencyObjective)
            else _outcomes(objective, samples)
        )
        for series, (good, bad) in source.items():
            before = self._before.get(series)
            if before is None:
                # A series that a complete observation did not have began at zero since.
                # Any other may hold events from before this objective.
                before = (0.0, 0.0) if self._source_read else (good, bad)
            elif good + bad < sum(before):
                before = (0.0, 0.0)
            self.good += max(0.0, good - before[0])
            self.bad += max(0.0, bad - before[1])
        self._before.update(source)
        self._source_read = not _source_failed(objective, samples)

    def _add_signal(
        self, objective: SignalObjective, samples: Iterable[AnySample], now: float
    ) -> None:
        values = dict(_values(objective, samples))
        for series, (value, is_counter) in values.items():
            judged: float | None = value
            if is_counter:
                judged = self._rate(series, value, now)
            if judged is None:
                continue
            low, high = objective.at_least, objective.at_most
            bad = (low is not None and judged < low) or (
                high is not None and judged > high
            )
            self.bad += bad
            self.good += not bad
        self._before = {series: (value, now) for series, (value, _) in values.items()}

    def _rate(self, series: Series, value: float, now: float) -> float | None:
        before, read_at = self._before.get(series, (value, now))
        if now <= read_at or value < before:
            return None
        return (value - before) / (now - read_at)


def _source_failed(objective: CountedObjective, samples: Iterable[AnySample]) -> bool:
    """Return whether the collector that counts the events could not read its source."""
    if objective.source == "probes":
        return False
    collector = "traces"
    if isinstance(objective, AvailabilityObjective):
        counted = objective.source == "requests"
        collector = "statistics" if counted else "access_log"
    return any(
        isinstance(sample, Sample)
        and sample.spec is catalogue.COLLECTOR_SUCCESS
        and sample.labels == (collector,)
        and not sample.value
        for sample in samples
    )


def _latencies(
    objective: LatencyObjective, samples: Iterable[AnySample]
) -> dict[Series, tuple[float, float]]:
    spec = _TIMED[objective.kind, objective.source]
    found: dict[Series, tuple[float, float]] = {}
    for sample in samples:
        if not isinstance(sample, HistogramSample) or sample.spec is not spec:
            continue
        if objective.matches(sample.labels[0]):
            (good,) = sample.histogram.cumulative((objective.threshold_seconds,))
            found[sample.labels] = (good, sample.histogram.count - good)
    return found


def _outcomes(
    objective: AvailabilityObjective | GoodputObjective, samples: Iterable[AnySample]
) -> dict[Series, tuple[float, float]]:
    wanted: dict[str, str] = {}
    if isinstance(objective, GoodputObjective):
        spec, success = catalogue.REQUEST_GOODPUT, frozenset({"met"})
        wanted["limits"] = objective.limits
    else:
        spec, success = _JUDGED[objective.source]
    found: dict[Series, tuple[float, float]] = {}
    for sample in samples:
        if not isinstance(sample, Sample) or sample.spec is not spec:
            continue
        if not objective.matches(sample.labels[0]):
            continue
        labels = labels_of(sample)
        outcome = labels.pop("outcome")
        if labels.get("source", objective.source) != objective.source:
            continue
        if not wanted.items() <= labels.items():
            continue
        if outcome in _UNJUDGED:
            continue
        series = tuple(labels.values())
        good, bad = found.get(series, (0.0, 0.0))
        if outcome in success:
            good += sample.value
        else:
            bad += sample.value
        found[series] = (good, bad)
    return found


def _values(
    objective: SignalObjective, samples: Iterable[AnySample]
) -> Iterator[tuple[Series, tuple[float, bool]]]:
    for sample in samples:
        if not isinstance(sample, Sample) or sample.spec.name != objective.metric:
            continue
        labels = labels_of(sample)
        if not objective.labels.items() <= labels.items():
            continue
        if "model" in labels and not objective.matches(labels["model"]):
            continue
        yield sample.labels, (sample.value, sample.spec.kind == "counter")
