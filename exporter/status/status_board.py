"""The state of each model, since when it is known, and the hours before it."""

from __future__ import annotations

import math
import threading
from array import array
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from exporter import catalogue
from exporter.access.source_reads import CounterRates, with_read_times
from exporter.samples import Sample, labels_of
from exporter.status.status_findings import findings, state_of, unread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from exporter.access.inventory import Inventory, ModelKey
    from exporter.catalogue.probe_outcomes import Outcome
    from exporter.features.slo.objectives import Objective
    from exporter.samples import AnySample
    from exporter.settings import ModelMention
    from exporter.status.status_findings import Finding, State

    Floats = NDArray[np.float64]

STEP_SECONDS: Final = 10.0
_STEPS: Final = 2_160
_MODELS: Final = 100
_MARKS: Final = 200
_RATES_SHOWN: Final = 20
_QUANTILES: Final = {"0.5": "p50", "0.99": "p99"}
_RATE: Final = "rate"
_SCORES: Final = ("accuracy", "match", "r2")
"""The one score of a data set is the first of these that it has."""
_DATA_SETS: Final = 2
"""More of a model are not recorded."""
_LOOKED_AT: Final = frozenset(
    {
        catalogue.REQUESTS,
        catalogue.REQUEST_LATENCY,
        catalogue.REQUEST_LATENCY_CI,
        catalogue.PROBE_LATENCY,
        catalogue.GOLDEN_SCORE,
        catalogue.GOLDEN_SCORE_CI,
        catalogue.GOLDEN_BASELINE,
        catalogue.RUN_INFO,
    }
)


class RecordedHistory:
    """Records a point every ten seconds; changes in between become marks."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=_STEPS)
        self._lines: dict[ModelKey, dict[str, array[float]]] = {}
        self._counters = CounterRates()
        self._rates: dict[ModelKey, float] = {}
        self._runs: set[str] | None = None
        self._marks: deque[dict[str, Any]] = deque(maxlen=_MARKS)

    def mark(self, now: float, kind: str, text: str) -> None:
        """Remember an event: `kind` is good, bad or neutral."""
        self._marks.append({"at": now, "kind": kind, "text": text})

    def record(self, samples: Iterable[AnySample], now: float) -> None:
        """Add a point of every line."""
        samples = list(samples)
        shown = [s for s in samples if s.spec in _LOOKED_AT and isinstance(s, Sample)]
        points = _latencies(shown)
        for key, scores in _scores(shown).items():
            points.setdefault(key, {}).update(scores)
        self._read_totals(samples, now)
        for key, rate in self._rates.items():
            points.setdefault(key, {})[_RATE] = rate
        self._note_runs(shown, now)
        self._add(points, now)

    def rates(self) -> dict[str, Any]:
        """Times, production's requests a second of the busiest models, and the marks."""
        by_model: dict[str, list[Floats]] = {}
        for (model, _), lines in self._lines.items():
            if _RATE in lines:
                by_model.setdefault(model, []).append(_numbers(lines[_RATE]))
        sums = {model: _sum(lines) for model, lines in by_model.items()}
        busiest = sorted(sums, key=lambda model: -float(np.nansum(sums[model])))
        shown = {model: sums[model] for model in busiest[:_RATES_SHOWN]}
        return self._document(shown) | {"marks": list(self._marks)}

    def has(self, key: ModelKey) -> bool:
        """Return whether this model version has a line."""
        return key in self._lines

    def of_model(self, key: ModelKey) -> dict[str, Any]:
        """Return times, and a model version's lines by name.

        Quantiles are in seconds, with their bounds; golden scores, their bounds and
        baselines are named by data set and metric.
        """
        lines = self._lines.get(key, {})
        return self._document({n: _numbers(v) for n, v in lines.items() if n != _RATE})

    def _document(self, lines: Mapping[str, Floats]) -> dict[str, Any]:
        return {
            "times": list(self._times),
            "lines": {name: _drawn(values) for name, values in lines.items()},
        }

    def _read_totals(self, samples: Iterable[AnySample], now: float) -> None:
        """Update the rates, which are over the time between two reads of the server.

        The steps of the history would not do: a step may contain one read or two.
        """
        totals = {
            sample.labels: (sample.value, read_at)
            for sample, read_at in with_read_times(samples, now)
            if sample.spec is catalogue.REQUESTS and isinstance(sample, Sample)
        }
        rates: dict[ModelKey, float] = {}
        for (model, version, _), rate in self._counters.add(totals).items():
            rates[model, version] = rates.get((model, version), 0.0) + rate
        if rates or not totals:
            self._rates = rates

    def _note_runs(self, shown: Iterable[Sample], now: float) -> None:
        runs = {s.labels[0] for s in shown if s.spec is catalogue.RUN_INFO}
        before, self._runs = self._runs, runs
        if before is not None:
            for run in sorted(runs - before):
                self.mark(now, "neutral", f"run {run} began")
            for run in sorted(before - runs):
                self.mark(now, "neutral", f"run {run} ended")

    def _add(self, points: Mapping[ModelKey, Mapping[str, float]], now: float) -> None:
        is_full = len(self._times) == _STEPS
        length = len(self._times)
        for key, values in points.items():
            if key not in self._lines and len(self._lines) >= _MODELS:
                continue
            lines = self._lines.setdefault(key, {})
            for name in values.keys() - lines.keys():
                lines[name] = array("f", [math.nan]) * length
        self._times.append(now)
        for key, lines in list(self._lines.items()):
            for line_name, line in list(lines.items()):
                line.append(points.get(key, {}).get(line_name, math.nan))
                if is_full:
                    del line[0]
            if key not in points and all(
                math.isnan(v) for line in lines.values() for v in line
            ):
                del self._lines[key]


def _latencies(shown: Iterable[Sample]) -> dict[ModelKey, dict[str, float]]:
    """Return production's quantiles with bounds; without these, our probes'."""
    production: dict[ModelKey, dict[str, float]] = {}
    probes: dict[str, dict[ModelKey, dict[str, float]]] = {"grpc": {}, "http": {}}
    for sample in shown:
        labels = labels_of(sample)
        name = _QUANTILES.get(labels.get("quantile", ""))
        if name is None:
            continue
        key = labels["model"], labels["version"]
        if sample.spec is catalogue.REQUEST_LATENCY:
            production.setdefault(key, {})[name] = sample.value
        elif sample.spec is catalogue.REQUEST_LATENCY_CI:
            bound = f"{name} {labels['bound']}"
            production.setdefault(key, {})[bound] = sample.value
        elif labels.get("protocol") in probes:
            probes[labels["protocol"]].setdefault(key, {})[name] = sample.value
    return probes["http"] | probes["grpc"] | production


def _scores(shown: Iterable[Sample]) -> dict[ModelKey, dict[str, float]]:
    """Return one golden score of each data set, with its interval and baseline."""
    suffixes = {
        catalogue.GOLDEN_SCORE: "",
        catalogue.GOLDEN_BASELINE: " baseline",
        catalogue.GOLDEN_SCORE_CI: " {bound}",
    }
    lines: dict[ModelKey, dict[str, dict[str, dict[str, float]]]] = {}
    for sample in shown:
        if sample.spec not in suffixes:
            continue
        labels = labels_of(sample)
        key, dataset = (labels["model"], labels["version"]), labels["dataset"]
        name = f"{dataset} {labels['metric']}{suffixes[sample.spec].format(**labels)}"
        metrics = lines.setdefault(key, {}).setdefault(dataset, {})
        metrics.setdefault(labels["metric"], {})[name] = sample.value
    return {
        key: {
            name: value
            for metrics in list(datasets.values())[:_DATA_SETS]
            for metric in [m for m in _SCORES if m in metrics][:1]
            for name, value in metrics[metric].items()
        }
        for key, datasets in lines.items()
    }


def _numbers(line: array[float]) -> Floats:
    return np.array(line, np.float64)


def _sum(lines: Sequence[Floats]) -> Floats:
    """Return the sum of the known values at each time; nan where there is none."""
    stacked = np.stack(lines)
    known = np.isfinite(stacked).any(axis=0)
    return np.where(known, np.nansum(stacked, axis=0), np.nan)


def _drawn(values: Floats) -> list[float | None]:
    """Round to the digits that a chart can show: four of the largest value."""
    finite = np.isfinite(values)
    largest = float(np.abs(values[finite]).max(initial=0.0))
    digits = 3 - math.floor(math.log10(largest)) if largest else 0
    rounded = np.round(np.where(finite, values, 0.0), digits).tolist()
    return [v if known else None for v, known in zip(rounded, finite, strict=True)]


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model's headline, and since when it is known, in seconds since 1970."""

    state: State
    since: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """The findings at one moment, and the state of each model that follows from them."""

    findings: Sequence[Finding]
    states: Mapping[ModelKey, ModelState]
    is_fresh: bool = True
    """False where the server was not read lately: nothing of it is known."""


class StatusBoard:
    """Judges the exposed samples, and remembers the findings. Thread-safe."""

    def __init__(
        self, wall_clock: Callable[[], float], clock: Callable[[], float]
    ) -> None:
        self._wall_clock = wall_clock
        self._clock = clock
        self._lock = threading.Lock()
        self._history = RecordedHistory()
        self._states: dict[ModelKey, ModelState] = {}
        self._was_read = False
        self._next_at = -math.inf
        """Monotonic seconds."""

    def judge(
        self,
        samples: Iterable[AnySample],
        inventory: Inventory,
        serving: Mapping[ModelKey, bool],
        objectives: Iterable[Objective],
        mentions: Iterable[ModelMention] = (),
        probed: Mapping[Outcome, Mapping[ModelKey, str]] = {},
        failing: Iterable[tuple[str, str]] = (),
    ) -> Judgement:
        """Return the current findings; a changed state becomes a mark.

        Before the server's first read there are none, unless collectors fail.
        """
        samples = list(samples)
        is_fresh = any(sample.spec is catalogue.UP for sample in samples)
        given = (samples, inventory, serving, objectives, mentions, probed)
        self._was_read |= is_fresh
        found: list[Finding] = []
        if is_fresh:
            found = findings(*given, failing)
        elif self._was_read or failing:
            found = [unread(inventory, dict(failing).get("server", ""))]
        keys = [entry.key for entry in inventory.shown()]
        with self._lock:
            now = self._wall_clock()
            before, self._states = self._states, {}
            for key in keys:
                state = (
                    state_of(key, found, inventory, serving) if is_fresh else "UNKNOWN"
                )
                old = before.get(key)
                if old is not None and old.state == state:
                    self._states[key] = old
                    continue
                self._states[key] = ModelState(state, now)
                if old is not None:
                    kind = "good" if state == "SERVING" else "bad"
                    text = f"{key[0]} {key[1]}: {old.state} to {state}"
                    self._history.mark(now, kind, text)
            return Judgement(found, dict(self._states), is_fresh)

    def mark(self, text: str) -> None:
        """Remember something that is neither good nor bad."""
        with self._lock:
            self._history.mark(self._wall_clock(), "neutral", text)

    def is_due(self) -> bool:
        """Return whether it is time to record another point."""
        return self._clock() >= self._next_at

    def record(self, samples: Iterable[AnySample]) -> None:
        """Add a point to the history."""
        with self._lock:
            self._next_at = self._clock() + STEP_SECONDS
            self._history.record(samples, self._wall_clock())

    def has_history(self, key: ModelKey) -> bool:
        """Return whether a model version has recorded history."""
        with self._lock:
            return self._history.has(key)

    def history(self, key: ModelKey | None) -> dict[str, Any]:
        """Return the lines of a model version, or the rates of all and the marks."""
        with self._lock:
            return self._history.rates() if key is None else self._history.of_model(key)
