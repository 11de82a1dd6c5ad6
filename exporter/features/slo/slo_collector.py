"""Counts events of the configured objectives in exposed samples, and keeps their budgets."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import Field

from exporter import catalogue
from exporter.access.collector_base import Access, CollectorSettings
from exporter.access.source_reads import (
    CounterRates,
    ReadAgain,
    Series,
    with_read_times,
)
from exporter.catalogue import probe_outcomes
from exporter.features.slo.objectives import (
    AvailabilityObjective,
    GoodputObjective,
    LatencyObjective,
    Objective,
    SignalObjective,
)
from exporter.samples import HistogramSample, Sample, labels_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from exporter.samples import AnySample

CountedObjective = LatencyObjective | AvailabilityObjective | GoodputObjective
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
_MOST_GONE: Final = 1_000
"""Limit of series that are remembered after they are gone."""
_UNJUDGED: Final = probe_outcomes.UNJUDGED | {"abandoned"}
"""Outcomes that are neither good nor bad: no answer, or one that shows nothing."""


class EventCounter:
    """Good and bad events of one objective since the start, counter resets survived."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.good = 0.0
        self.bad = 0.0
        self._rates = CounterRates()
        self._gauges = ReadAgain()
        self._before: dict[Series, tuple[float, float]] = {}
        # True if the previous observation was complete, so that its series are known.
        self._source_read = False

    def add(self, samples: Sequence[AnySample], now: float) -> None:
        """Count the events of the samples exposed now; `now` is monotonic seconds.

        A gauge, and the rate of a counter over all versions of a model, are one event
        each time that their source was read.
        """
        if isinstance(self.objective, SignalObjective):
            self._add_signal(self.objective, samples, now)
        else:
            self._add_totals(self.objective, samples)

    def _add_totals(
        self, objective: CountedObjective, samples: Sequence[AnySample]
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
        # A series that is gone may come back, and then goes on from where it was.
        gone = [s for s in self._before if s not in source][-_MOST_GONE:]
        self._before = {s: self._before[s] for s in gone} | source
        self._source_read = not _source_failed(objective, samples)

    def _add_signal(
        self, objective: SignalObjective, samples: Iterable[AnySample], now: float
    ) -> None:
        counters: dict[Series, tuple[float, float | None]] = {}
        gauges: dict[Series, tuple[float, float | None]] = {}
        model_of: dict[Series, Series] = {}
        for sample, read_at in with_read_times(samples, now):
            if not isinstance(sample, Sample) or not _is_judged(objective, sample):
                continue
            found = counters if sample.spec.kind == "counter" else gauges
            found[sample.labels] = sample.value, read_at
            model_of[sample.labels] = tuple(
                value for name, value in labels_of(sample).items() if name != "version"
            )
        for series in self._gauges.add({s: at for s, (_, at) in gauges.items()}):
            self._judge(objective, gauges[series][0])
        # Traffic moves to another version; one without requests stays loaded.
        rates: dict[Series, float] = defaultdict(float)
        known = self._rates.add(counters)
        for series in counters:
            # A version that is new or was reset has no rate, nor has its model then.
            rates[model_of[series]] += known.get(series, math.nan)
        for rate in filter(math.isfinite, rates.values()):
            self._judge(objective, rate)

    def _judge(self, objective: SignalObjective, value: float) -> None:
        low, high = objective.at_least, objective.at_most
        bad = (low is not None and value < low) or (high is not None and value > high)
        self.bad += bad
        self.good += not bad


def _source_failed(objective: CountedObjective, samples: Iterable[AnySample]) -> bool:
    """Return whether the collector that counts the events could not read its source."""
    if objective.source == "probes":
        return False
    from_traces = not isinstance(objective, AvailabilityObjective)
    collector = "traces" if from_traces else objective.needs or "statistics"
    return any(
        isinstance(sample, Sample)
        and sample.spec is catalogue.COLLECTOR_SUCCESS
        and sample.labels == (collector,)
        and not sample.value
        for sample in samples
    )


def _latencies(
    objective: LatencyObjective, samples: Sequence[AnySample]
) -> dict[Series, tuple[float, float]]:
    spec = _TIMED[objective.kind, objective.source]
    timeouts = {
        sample.labels[:-1]: sample.value
        for sample in samples
        if isinstance(sample, Sample) and sample.spec is catalogue.PROBE_TOTAL
        if sample.labels[-1] == "timeout"
    }
    found: dict[Series, tuple[float, float]] = {}
    for sample in samples:
        if not isinstance(sample, HistogramSample) or sample.spec is not spec:
            continue
        if objective.matches(sample.labels[0]):
            count: float = sample.histogram.count
            late = timeouts.get(sample.labels, 0.0)
            good: float
            (good,) = sample.histogram.cumulative((objective.threshold_seconds,))
            if spec is catalogue.PROBE_DURATION:
                # A timeout has the duration of the probe's timeout; its answer took longer.
                good = min(good, count - late)
            elif spec is catalogue.PROBE_FIRST_RESPONSE:
                count += late
            found[sample.labels] = (good, count - good)
    return found


def _outcomes(
    objective: AvailabilityObjective | GoodputObjective, samples: Iterable[AnySample]
) -> dict[Series, tuple[float, float]]:
    if isinstance(objective, GoodputObjective):
        spec, success = catalogue.REQUEST_GOODPUT, frozenset({"met"})
        which, wanted = "limits", objective.limits
    else:
        spec, success = _JUDGED[objective.source]
        which, wanted = "source", objective.source
    found: dict[Series, tuple[float, float]] = {}
    for sample in samples:
        if not isinstance(sample, Sample) or sample.spec is not spec:
            continue
        labels = labels_of(sample)
        outcome = labels.pop("outcome")
        if not objective.matches(labels["model"]) or outcome in _UNJUDGED:
            continue
        if labels.get(which, wanted) != wanted:
            continue
        series = tuple(labels.values())
        good, bad = found.get(series, (0.0, 0.0))
        if outcome in success:
            good += sample.value
        else:
            bad += sample.value
        found[series] = (good, bad)
    return found


def _is_judged(objective: SignalObjective, sample: Sample) -> bool:
    if sample.spec.name != objective.metric:
        return False
    labels = labels_of(sample)
    fits = objective.labels.items() <= labels.items()
    return fits and ("model" not in labels or objective.matches(labels["model"]))


FINE_SECONDS: Final = 30.0
COARSE_SECONDS: Final = 3600.0
_FINE_SPAN_SECONDS: Final = 3 * 86400.0
WINDOWS: Final = {
    "5m": 300.0,
    "30m": 1800.0,
    "1h": 3600.0,
    "2h": 7200.0,
    "6h": 21600.0,
    "1d": 86400.0,
    "3d": 259200.0,
}
"""The windows of the workbook's alerts, in seconds."""
FAST_BURN: Final = 14.4
"""The burn rate that pages: a month's budget in two days."""


class _Ring:
    """Cumulative (good, bad) at the start of each slot, the latest slots kept."""

    def __init__(self, slot_seconds: float, span_seconds: float) -> None:
        self._slot_seconds = slot_seconds
        # A span that begins and ends within a slot lies in one more than it is long.
        self._size = int(span_seconds / slot_seconds) + 2
        self._totals = np.zeros((self._size, 2))
        self._slot = -1

    def note(self, now: float, good: float, bad: float) -> None:
        slot = int(now / self._slot_seconds)
        # Slots without a reading begin with the totals of the reading before them.
        for missed in range(max(self._slot + 1, slot - self._size + 1), slot + 1):
            self._totals[missed % self._size] = (good, bad)
        self._slot = slot

    def at(self, when: float) -> tuple[float, float]:
        """Return the totals at the start of the slot of `when`, a span ago at most."""
        good, bad = self._totals[int(when / self._slot_seconds) % self._size]
        return float(good), float(bad)


class Budget:
    """Burn rates over every window, and the budget left, of one objective.

    Burn rate as the SRE workbook has it (chapter 5): the share of bad events divided by
    the share allowed. 1 uses the budget up exactly at the end of its window.
    """

    def __init__(self, objective_ratio: float, window_seconds: float) -> None:
        self._allowed = 1 - objective_ratio
        self._window_seconds = window_seconds
        self._fine = _Ring(FINE_SECONDS, _FINE_SPAN_SECONDS)
        self._coarse = _Ring(COARSE_SECONDS, window_seconds)
        self._good = 0.0
        self._bad = 0.0

    def note(self, now: float, good: float, bad: float) -> None:
        """Record the totals since the start; `now` is monotonic seconds.

        `burn_rate` and `remaining_ratio` take the same `now` afterwards, not a later one.
        """
        self._fine.note(now, self._good, self._bad)
        self._coarse.note(now, self._good, self._bad)
        self._good, self._bad = good, bad

    def burn_rate(self, now: float, window_seconds: float) -> float | None:
        """Share of bad events over the allowed share; None without events.

        Before a whole window was observed, the rate is that of the observed time.
        """
        share = self._bad_share(self._fine.at(now - window_seconds))
        return None if share is None else share / self._allowed

    def burns(self, now: float) -> bool | None:
        """Return whether the rate is over `FAST_BURN`; None without events in an hour."""
        rate = self.burn_rate(now, WINDOWS["1h"])
        if rate is None:
            return None
        # One bad event of a quiet hour is no rate.
        several = self._bad - self._fine.at(now - WINDOWS["1h"])[1] > 1
        lately = self.burn_rate(now, WINDOWS["5m"]) or 0.0
        return several and min(rate, lately) > FAST_BURN

    def remaining_ratio(self, now: float) -> float | None:
        """Return the remaining share of the budget: 1 untouched, 0 used up, below 0 overdrawn."""
        share = self._bad_share(self._coarse.at(now - self._window_seconds))
        return None if share is None else 1 - share / self._allowed

    def _bad_share(self, since: tuple[float, float]) -> float | None:
        good, bad = self._good - since[0], self._bad - since[1]
        return bad / (good + bad) if good + bad > 0 else None


_DAY_SECONDS: Final = 86400.0


class SloSettings(CollectorSettings):
    """Built from `slos:`; observes once every interval."""

    objectives: tuple[Objective, ...] = Field(default=())
    """The objectives, with presets expanded."""

    def build(self, access: Access) -> SloCollector:
        """The collector."""
        return SloCollector(self, access)


class SloCollector:
    """Counts good and bad events and keeps the budgets."""

    def __init__(self, settings: SloSettings, access: Access) -> None:
        self._access = access
        self.objectives = [
            (
                EventCounter(objective),
                Budget(objective.objective_ratio, objective.window_days * _DAY_SECONDS),
            )
            for objective in settings.objectives
        ]

    def inherit(self, predecessor: object) -> None:
        """Keep the events and budgets of unchanged objectives."""
        if not isinstance(predecessor, SloCollector):
            return
        kept = {entry[0].objective.name: entry for entry in predecessor.objectives}
        self.objectives = [
            old
            if (old := kept.get(fresh[0].objective.name, fresh))[0].objective
            == fresh[0].objective
            else fresh
            for fresh in self.objectives
        ]

    def collect(self) -> Sequence[AnySample]:
        """Read all exposed samples once, and return the state of the objectives."""
        now = self._access.clock()
        exposed = list(self._access.exposed())
        samples: list[AnySample] = []
        for counter, budget in self.objectives:
            counter.add(exposed, now)
            budget.note(now, counter.good, counter.bad)
            samples += _samples(counter, budget, now)
            samples += doubt(counter.objective, exposed)
        return samples


def doubt(objective: Objective, exposed: Iterable[AnySample]) -> Sequence[AnySample]:
    """Return whether requests that count as successes are known to fail."""
    if isinstance(objective, SignalObjective) or objective.source != "requests":
        return ()
    is_doubtful = any(
        sample.spec is catalogue.OUTCOMES_DOUBTFUL
        and isinstance(sample, Sample)
        and sample.value
        and objective.matches(sample.labels[0])
        for sample in exposed
    )
    return (Sample(catalogue.SLO_DOUBTFUL, is_doubtful, (objective.name,)),)


def _samples(counter: EventCounter, budget: Budget, now: float) -> Sequence[AnySample]:
    name = counter.objective.name
    samples = [
        Sample(catalogue.SLO_OBJECTIVE, counter.objective.objective_ratio, (name,)),
        Sample(catalogue.SLO_EVENTS, counter.good, (name, "good")),
        Sample(catalogue.SLO_EVENTS, counter.bad, (name, "bad")),
    ]
    for window, seconds in WINDOWS.items():
        rate = budget.burn_rate(now, seconds)
        if rate is not None:
            samples.append(Sample(catalogue.SLO_BURN_RATE, rate, (name, window)))
    known = {
        catalogue.SLO_BURNING: budget.burns(now),
        catalogue.SLO_BUDGET: budget.remaining_ratio(now),
    }
    samples += [Sample(s, v, (name,)) for s, v in known.items() if v is not None]
    return samples
