"""Power of a board that serves models of known watts, as its sensor and Triton show it.

Requests come at a rate that wanders (log-normal, a minute of memory) and are served one
after the other by each model, so that busy time has bursts and slow changes. The sensor
shows the power some seconds late, with noise on each reading. Statistics are polled every
five seconds, the sensor every second, at instants of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exporter.access.work_board import ModelWork, WorkSnapshot
from exporter.features.energy.energy_accounts import Books
from exporter.features.energy.energy_meter import MICRO
from exporter.features.energy.placement import Placement
from exporter.features.energy.sources.power_source import Device, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from exporter.access.inventory import ModelKey

    Floats = NDArray[np.float64]

TICK_SECONDS = 0.1
EXECUTION_SECONDS = 0.02
WANDER = 0.5
MEMORY_SECONDS = 60.0
OTHER_MEMORY_SECONDS = 30.0
IDLE_WATTS = 60.0
POLL_SECONDS = 5.0


@dataclass(frozen=True)
class Served:
    """One model: watts above idle of a busy second, and its mean busy ratio."""

    watts: float
    busy: float


@dataclass(frozen=True)
class Trace:
    """What happens on the board, by model; `lag` in seconds, `noise` as a ratio.

    `idle_error` is how far the idle power given (or learnt long ago) is from the true
    one, as a ratio of it; `noise_memory` is the correlation of the noise of successive
    readings, `together` the part of the wandering that all models share. Other processes
    take `other_watts` in the mean, log-normal with half a minute of memory; no model runs
    in the first `quiet_seconds`.
    """

    models: tuple[Served, ...]
    seconds: float = 1500.0
    lag: float = 0.0
    noise: float = 0.0
    noise_memory: float = 0.0
    idle_error: float = 0.0
    together: float = 0.0
    learnt_idle: bool = False
    other_watts: float = 0.0
    quiet_seconds: float = 0.0


def key_of(number: int) -> ModelKey:
    """Name and version of the model of that number."""
    return f"model-{number}", "1"


def autoregressive(rng: np.random.Generator, count: int, correlation: float) -> Floats:
    """Normal numbers of variance 1, each correlated with the one before."""
    steps = rng.normal(size=count) * math.sqrt(1.0 - correlation**2)
    steps[0] /= math.sqrt(1.0 - correlation**2)
    level, found = 0.0, []
    for step in steps.tolist():
        level = correlation * level + step
        found.append(level)
    return np.array(found)


def busy_seconds(rng: np.random.Generator, trace: Trace) -> Floats:
    """Busy seconds of each model by tick (models, ticks), cumulative."""
    ticks = round(trace.seconds / TICK_SECONDS)
    memory = math.exp(-1.0 / MEMORY_SECONDS)
    whole = round(trace.seconds) + 1

    def wander() -> Floats:
        level = autoregressive(rng, whole, memory)
        return np.repeat(level, round(1 / TICK_SECONDS))[:ticks]

    shared, found = wander(), []
    for model in trace.models:
        level = math.sqrt(trace.together) * shared
        level = level + math.sqrt(1.0 - trace.together) * wander()
        rate = model.busy * np.exp(WANDER * level - WANDER**2 / 2)
        rate[: round(trace.quiet_seconds / TICK_SECONDS)] = 0.0
        work = EXECUTION_SECONDS * rng.poisson(rate * TICK_SECONDS / EXECUTION_SECONDS)
        # Lindley: what is not served yet waits.
        walk = np.cumsum(work - TICK_SECONDS)
        waiting = walk - np.minimum(np.minimum.accumulate(walk), 0.0)
        found.append(np.cumsum(work) - waiting)
    return np.array(found)


def follow(rng: np.random.Generator, trace: Trace) -> Books:
    """The books after the whole trace, read and polled as a sidecar does."""
    busy = busy_seconds(rng, trace)
    watts = np.array([model.watts for model in trace.models])
    ticks = TICK_SECONDS * np.arange(busy.shape[1] + 1)
    busy = np.concatenate([np.zeros((len(watts), 1)), busy], axis=1)
    joules = IDLE_WATTS * ticks + watts @ busy + _other_joules(rng, trace, ticks)
    given = IDLE_WATTS * (1.0 + trace.idle_error)
    device = Device(
        "gpu", "nvml", "GPU-1", idle_watts=None if trace.learnt_idle else given
    )
    books = Books(POLL_SECONDS)
    reads = rng.uniform(0.0, 1.0) + np.arange(math.floor(trace.seconds) - 1)
    shown = np.interp(reads - trace.lag, ticks, joules)
    shown += np.minimum(reads - trace.lag, 0.0) * IDLE_WATTS
    rises = np.diff(shown, prepend=shown[0])
    noise = autoregressive(rng, len(reads), trace.noise_memory)
    counter = 1e6 + np.cumsum(rises * np.maximum(0.0, 1.0 + trace.noise * noise))
    polls = np.arange(1.0, trace.seconds, POLL_SECONDS)
    polls += rng.uniform(0.0, 0.2, len(polls))
    place, look = 0, None
    placement = Placement(frozenset({device.key}))
    for at, joule in zip(reads.tolist(), counter.tolist(), strict=True):
        books.add(Reading(device, at, round(joule * MICRO)))
        if trace.learnt_idle:
            idle = books.devices[device.labels].idle
            while idle.watts is None:
                idle.learn(round(given * MICRO), 1.0)
        while place < len(polls) and polls[place] <= at:
            look = _look(polls[place], ticks, busy)
            place += 1
        books.settle(look, placement, at)
    return books


def _other_joules(rng: np.random.Generator, trace: Trace, ticks: Floats) -> Floats:
    """Joules of other processes until each tick."""
    if not trace.other_watts:
        return np.zeros_like(ticks)
    memory = math.exp(-1.0 / OTHER_MEMORY_SECONDS)
    level = autoregressive(rng, math.ceil(trace.seconds) + 1, memory)
    watts = trace.other_watts * np.exp(level - 0.5)
    return np.interp(ticks, np.arange(len(watts)), np.cumsum(watts) - watts[0])


def _look(at: float, ticks: Floats, busy: Floats) -> WorkSnapshot:
    seconds = [float(np.interp(at, ticks, item)) for item in busy]
    return WorkSnapshot(
        float(at),
        {
            key_of(number): ModelWork(item, item, round(item / EXECUTION_SECONDS))
            for number, item in enumerate(seconds)
        },
    )
