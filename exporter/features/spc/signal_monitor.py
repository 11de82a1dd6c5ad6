"""One monitored signal: its baseline, its charts, and their alarms."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, get_args

import numpy as np

from drift.numerics.run_length import known
from exporter.features.spc import signal_baseline as baselines
from exporter.features.spc.control_charts import beyond, guarded_limit, limit_of
from exporter.features.spc.signal_baseline import Assumption, Baseline, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drift.numerics.normal import Floats
    from drift.numerics.run_length import Sides
    from exporter.features.spc.control_charts import Chart

STATE_VERSION: Final = 1
_LARGEST: Final = 1e70
"""Larger samples are ignored, as infinite ones: their fourth powers would overflow."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Requirements of a signal's charts.

    `in_control_arl` samples pass on average between false alarms of all charts
    together; `heal_samples` without one end an alarm. The baseline is `given`, or learnt
    from the first `learn_samples`.
    """

    charts: tuple[Chart, ...]
    in_control_arl: float
    sides: Sides = "both"
    heal_samples: int = 20
    learn_samples: int = 100
    given: Baseline | None = None
    least_sigma: float = 0.0
    sample_seconds: float = field(default=math.inf, repr=False)
    """Time between two samples."""
    source: str = field(default="", repr=False)
    """The signal and the time between samples: the baseline of another one does not apply."""


@dataclass(frozen=True, slots=True)
class ChartStatus:
    """One chart now: the statistic is signed, negative where it points down."""

    kind: str
    statistic: float
    limit: float
    alarm: bool
    alarms: int
    run_length: float
    """Samples between its false alarms, were the baseline known exactly."""
    run_length_low: float | None
    """Lower bound of the run length for nine baselines of ten; None where refused."""


@dataclass(slots=True)
class _Watch:
    chart: Chart
    limit: float
    memory: Floats
    alarm: bool = False
    quiet: int = 0
    alarms: int = 0


@dataclass(slots=True)
class Signal:
    """The charts of one signal. Samples come in order; not thread-safe."""

    plan: Plan
    baseline: Baseline | None = None
    samples: int = 0
    refused: Refusal = "none"
    """Reason why there is no lower bound of the run length."""
    _learning: list[float] = field(default_factory=list)
    _before: float | None = None
    _watches: list[_Watch] = field(default_factory=list)
    _lengths: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        for chart in self.plan.charts:
            limit = limit_of(chart, self._each_arl, self.plan.sides)
            self._watches.append(_Watch(chart, limit, chart.fresh(limit)))
        if self.plan.given is not None:
            self._begin(self.plan.given)

    @property
    def _each_arl(self) -> float:
        # A bound: together they alarm at most as often as separately.
        return self.plan.in_control_arl * len(self.plan.charts)

    @property
    def learning(self) -> bool:
        """Return whether the baseline is still being learnt."""
        return self.baseline is None

    def add(self, value: float) -> bool:
        """Add one sample; return whether a new alarm began. NaN and huge ones are ignored."""
        if not _usable(value):
            return False
        self.samples += 1
        if self.baseline is None:
            self._learning.append(value)
            if len(self._learning) >= self.plan.learn_samples:
                seconds = len(self._learning) * self.plan.sample_seconds
                self._begin(
                    baselines.learn(
                        self._learning, self.plan.least_sigma, seconds=seconds
                    )
                )
                self._before = value
                self._learning.clear()
            return False
        correlated = self.baseline.correlation != 0
        z = self.baseline.standardised(value, self._before if correlated else None)
        self._before = value
        begun = [self._step(watch, np.asarray(z)) for watch in self._watches]
        return any(begun)

    def interrupt(self) -> None:
        """Forget the latest sample: the next one is too late to be correlated with it."""
        self._before = None

    def acknowledge(self, kind: str | None = None) -> int:
        """End the alarms of one chart, or of all, and reset them; return their number."""
        ended = 0
        for watch in self._watches:
            if watch.alarm and kind in (None, watch.chart.kind):
                self._end(watch)
                ended += 1
        return ended

    def relearn(self) -> None:
        """Forget the baseline, and learn it again from the next samples."""
        if self.plan.given is None:
            self.baseline = self._before = None
            self._learning.clear()
        for watch in self._watches:
            self._end(watch)

    def status(self) -> Iterator[ChartStatus]:
        """Each chart now; nothing while the baseline is learnt."""
        if self.baseline is None:
            return
        low = self._each_arl if self.refused == "none" else None
        for watch, length in zip(self._watches, self._lengths, strict=True):
            upper, lower = map(float, watch.chart.statistics(watch.memory))
            signed = {
                "both": upper if upper >= lower else -lower,
                "upper": upper,
                "lower": -lower,
            }[self.plan.sides]
            yield ChartStatus(
                watch.chart.kind,
                signed,
                watch.limit,
                watch.alarm,
                watch.alarms,
                length,
                low,
            )

    def _begin(self, baseline: Baseline) -> None:
        self.baseline = baseline
        wanted, sides = self._each_arl, self.plan.sides
        errors = baseline.shift_error, baseline.spread_error
        held = []
        self._lengths.clear()
        for watch in self._watches:
            watch.limit, holds = guarded_limit(watch.chart, wanted, sides, *errors)
            watch.memory = watch.chart.fresh(watch.limit)
            self._lengths.append(known(watch.chart.run_length(watch.limit, 0.0, sides)))
            held.append(holds)
        self.refused = baseline.refused
        if self.refused == "none" and not all(held):
            self.refused = "few_samples"

    def _step(self, watch: _Watch, z: Floats) -> bool:
        watch.memory = watch.chart.step(watch.memory, z, watch.limit)
        if beyond(watch.chart, watch.memory, watch.limit, self.plan.sides):
            watch.quiet = 0
            begun = not watch.alarm
            watch.alarm = True
            watch.alarms += begun
            return begun
        watch.quiet += 1
        if watch.alarm and watch.quiet >= self.plan.heal_samples:
            self._end(watch)
        return False

    def _end(self, watch: _Watch) -> None:
        watch.alarm = False
        watch.memory = watch.chart.fresh(watch.limit)

    def to_state(self) -> dict[str, Any]:
        """Return the state for `restore`, as JSON values."""
        return {
            "version": STATE_VERSION,
            "plan": repr(self.plan),
            "source": self.plan.source,
            "baseline": None if self.baseline is None else asdict(self.baseline),
            "samples": self.samples,
            "learning": list(self._learning),
            "before": self._before,
            "watches": [
                {
                    "memory": watch.memory.tolist(),
                    "alarm": watch.alarm,
                    "quiet": watch.quiet,
                    "alarms": watch.alarms,
                }
                for watch in self._watches
            ],
        }

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Restore a saved state; return False if it belongs to another plan.

        Raises:
            ValueError: it is not a state.
        """
        try:
            # States of 0.1.0 have no source.
            source = state.get("source", self.plan.source)
            found_plan = state["version"], state["plan"], source
            if found_plan != (STATE_VERSION, repr(self.plan), self.plan.source):
                return False
            found = None if state["baseline"] is None else _baseline(state["baseline"])
            watches = _checked(self._watches, state["watches"])
            learning = [_finite(value) for value in state["learning"]]
            before = None if state["before"] is None else _finite(state["before"])
            samples = int(state["samples"])
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"invalid state of a signal: {error!r}") from None
        if self.plan.given is None and found is not None:
            self._begin(found)
        self._learning, self._before, self.samples = learning, before, samples
        for watch, (memory, alarm, quiet, alarms) in zip(
            self._watches, watches, strict=True
        ):
            watch.memory, watch.alarm = memory, alarm
            watch.quiet, watch.alarms = quiet, alarms
        return True


def _baseline(state: Mapping[str, Any]) -> Baseline:
    """The baseline that was kept, with which samples can be standardised."""
    effective = state.get("effective_samples")
    found = Baseline(
        float(state["mean"]),
        float(state["sigma"]),
        float(state["correlation"]),
        int(state["samples"]),
        _one_of(Assumption, state["assumption"]),
        bool(state["normal"]),
        _finite(state.get("shift_error", 0.0)),
        _finite(state.get("spread_error", 1.0)),
        _one_of(Refusal, state.get("refused", "old_state")),
        None if effective is None else _finite(effective),
    )
    if found.shift_error < 0 or found.spread_error < 1:
        raise ValueError("the errors of the baseline are negative")
    deviation = found.residual_sigma
    if not (math.isfinite(found.mean) and 0 < deviation < math.inf):
        raise ValueError("no samples can be compared with the baseline")
    return found


def _usable(value: float) -> bool:
    return abs(value) <= _LARGEST


def _finite(value: Any) -> float:
    if not _usable(found := float(value)):
        raise ValueError(f"found the sample {value!r}")
    return found


def _one_of(names: Any, found: object) -> Any:
    if found not in get_args(names):
        raise ValueError(f"found {found!r}; want one of {get_args(names)}")
    return found


def _checked(
    watches: Sequence[_Watch], entries: Sequence[Mapping[str, Any]]
) -> list[tuple[Floats, bool, int, int]]:
    checked = []
    for watch, entry in zip(watches, entries, strict=True):
        memory = np.asarray(entry["memory"], np.float64)
        if memory.shape != watch.memory.shape or not np.isfinite(memory).all():
            raise ValueError(
                f"the stored state does not fit the chart {watch.chart.kind}"
            )
        checked.append(
            (memory, bool(entry["alarm"]), int(entry["quiet"]), int(entry["alarms"]))
        )
    return checked
