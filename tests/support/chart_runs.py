"""True run lengths of signals whose baseline production learnt, many at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exporter.features.spc.control_charts import FARTHEST_SIGMA, beyond
from exporter.features.spc.signal_monitor import Signal
from exporter.features.spc.spc_collector import plan_of
from exporter.features.spc.spc_settings import SignalSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SPELL_SAMPLES = 20
SAMPLE_SECONDS = 300.0
_WARM_UP = 200
_REMEMBERED = 0.85
"""Share of the variance of a sample that the variance before it decides."""


@dataclass
class Process:
    """A signal with mean 0, drawn on and on for an array of runs."""

    rng: np.random.Generator
    shape: tuple[int, ...]
    correlation: float = 0.0
    freedom: float = math.inf
    wave: float = 0.0
    """Amplitude, in standard deviations of what is added to it."""
    cycle: int = 288
    """Samples of a wave: a day of them, five minutes apart."""
    clusters: float = 0.0
    """Share of the variance of a sample that the one before it decides (GARCH)."""
    spells: float = 0.0
    """Deviations by which half of the samples are higher, in spells of `SPELL_SAMPLES`."""

    def __post_init__(self) -> None:
        self._level = np.zeros(self.shape)
        self._variance = np.ones(self.shape)
        self._high = self.rng.random(self.shape) < 0.5
        # Each run begins at its own time of day.
        self._phase = self.rng.uniform(0.0, 2.0 * math.pi, self.shape)
        for _ in range(_WARM_UP if self.correlation or self.clusters else 0):
            self.draw()

    def draw(self) -> Floats:
        """The next sample of every run."""
        shock = (
            self.rng.standard_normal(self.shape)
            if math.isinf(self.freedom)
            else self.rng.standard_t(self.freedom, self.shape)
        )
        if self.clusters:
            shock = np.sqrt(self._variance) * shock
            fresh = 1.0 - _REMEMBERED - self.clusters
            self._variance = (
                fresh + self.clusters * np.square(shock) + _REMEMBERED * self._variance
            )
        self._level = self.correlation * self._level + shock
        if self.spells:
            self._high ^= self.rng.random(self.shape) < 1.0 / SPELL_SAMPLES
            return self._level + self.spells * self._high
        if not self.wave:
            return self._level
        self._phase = self._phase + 2.0 * math.pi / self.cycle
        return self._level + self.wave * np.sin(self._phase)


PROCESSES = {
    "normal": {},
    "t5": {"freedom": 5.0},
    "AR(0.5)": {"correlation": 0.5},
    "AR(0.9)": {"correlation": 0.9},
    "daily_wave": {"wave": 1.0},
    "small_daily_wave": {"wave": 0.3},
    "weekly_wave": {"wave": 0.3, "cycle": 2016},
    "spells_of_spread": {"clusters": 0.1},
    "spells_of_level": {"spells": 0.5},
}


def learnt(process: Process, settings: SignalSettings) -> list[Signal]:
    """One signal for each run (B,), its baseline learnt by the collector's own code."""
    values = np.stack([process.draw() for _ in range(settings.learn_samples)])
    signals = [
        Signal(plan_of(settings, SAMPLE_SECONDS)) for _ in range(values.shape[1])
    ]
    for signal, column in zip(signals, values.T.tolist(), strict=True):
        for value in column:
            signal.add(value)
    return signals


def true_run_lengths(signals: list[Signal], process: Process, samples: int) -> Floats:
    """Mean samples between false alarms of all charts together (B,), by simulation.

    The process has shape (B, R): each baseline is watched R times. Standardised as
    `Baseline.standardised` does, for arrays; a chart that speaks begins anew.
    """
    bases = [signal.baseline for signal in signals]
    mean, sigma, correlation = (
        np.array([getattr(base, name) for base in bases])[:, None]
        for name in ("mean", "residual_sigma", "correlation")
    )
    statuses = [list(signal.status()) for signal in signals]
    plan = signals[0].plan
    limits = [
        np.array([status[place].limit for status in statuses])[:, None]
        for place in range(len(plan.charts))
    ]
    fresh = [
        chart.fresh(limit, process.shape)
        for chart, limit in zip(plan.charts, limits, strict=True)
    ]
    memories = [memory.copy() for memory in fresh]
    alarms = np.zeros(process.shape)
    before = process.draw()
    for _ in range(samples):
        value = process.draw()
        z = (value - mean - correlation * (before - mean)) / sigma
        z = np.clip(z, -FARTHEST_SIGMA, FARTHEST_SIGMA)
        before = value
        for place, chart in enumerate(plan.charts):
            limit = limits[place]
            memory = chart.step(memories[place], z, limit)
            spoken = beyond(chart, memory, limit, plan.sides)
            alarms += spoken
            memories[place] = np.where(spoken, fresh[place], memory)
    return samples * process.shape[1] / np.maximum(alarms.sum(axis=1), 0.5)


def settings(**changes: object) -> SignalSettings:
    """A signal as the configuration has it."""
    return SignalSettings.model_validate(
        {"name": "simulated", "metric": "triton_golden_score_ratio"} | changes
    )
