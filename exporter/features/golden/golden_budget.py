"""Budget of a golden probe, and the control chart that detects lost accuracy."""

from __future__ import annotations

import functools
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from drift.numerics import run_length

if TYPE_CHECKING:
    from exporter.features.golden.golden_settings import GoldenSettings

log = structlog.get_logger()

WINDOW_SECONDS: Final = 60.0
_MOST_READINGS: Final = 1_000
_MOST_REQUESTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Spent:
    """Use of the budget within the window."""

    requests: int
    busy_seconds: float
    production_requests: float
    production_busy_seconds: float


class Budget:
    """The requests that one model version may still get. Not thread-safe.

    An idle model also gets requests: up to `idle_requests_per_second`, which may keep
    it busy for `idle_busy_ratio` of the time.
    """

    def __init__(self, settings: GoldenSettings) -> None:
        self._settings = settings
        self._own: deque[tuple[float, int, float]] = deque(maxlen=_MOST_REQUESTS)
        self._readings: deque[tuple[float, float, float]] = deque(maxlen=_MOST_READINGS)

    def add_production(self, at: float, requests: float, busy_seconds: float) -> None:
        """Record production's counters at an instant; they fall by a restart only."""
        if self._readings and requests < self._readings[-1][1]:
            self._readings.clear()
        if not self._readings or at > self._readings[-1][0]:
            self._readings.append((at, requests, busy_seconds))

    def add_own(self, at: float, requests: int, busy_seconds: float) -> None:
        """Record requests sent; their time on the wire, an upper bound, counts as busy time."""
        self._own.append((at, requests, busy_seconds))

    def allows(self, now: float, requests: int = 1) -> bool:
        """Return whether more requests of the same cost stay within it."""
        spent = self.spent(now)
        each = spent.busy_seconds / spent.requests if spent.requests else 0.0
        may = self._settings
        most_requests = max(
            may.idle_requests_per_second * WINDOW_SECONDS,
            _beside(may.request_share) * spent.production_requests,
        )
        most_busy = max(
            may.idle_busy_ratio * WINDOW_SECONDS,
            _beside(may.busy_share) * spent.production_busy_seconds,
        )
        return (
            spent.requests + requests <= most_requests
            and spent.busy_seconds + requests * each <= most_busy
        )

    def spent(self, now: float) -> Spent:
        """The window that ends now."""
        since = now - WINDOW_SECONDS
        while self._own and self._own[0][0] < since:
            self._own.popleft()
        # One reading from before the window is kept, as its start.
        while len(self._readings) > 1 and self._readings[1][0] <= since:
            self._readings.popleft()
        readings = self._readings or [(0.0, 0.0, 0.0)]
        first, last = readings[0], readings[-1]
        return Spent(
            sum(count for _, count, _ in self._own),
            sum(busy for _, _, busy in self._own),
            last[1] - first[1],
            last[2] - first[2],
        )


def _beside(share: float) -> float:
    """Return our part relative to production's, where ours is `share` of both."""
    return share / (1.0 - share)


_LEAST_FAILING: Final = 0.002
_MOST_STATES: Final = 50_000


@dataclass(frozen=True, slots=True)
class LossChart:
    """A CUSUM of right and wrong answers (Reynolds and Stoumbos 1999).

    It rises by `up` with each wrong answer, falls by 1 with each right one, not below
    0, and alarms at `limit`: the log likelihood ratio of the accuracy less the
    loss against the accuracy, in whole steps, so that its run length is exact.
    """

    up: int
    limit: int
    arl: float
    """Samples between false alarms, on average."""

    @classmethod
    @functools.lru_cache(maxsize=256)
    def of(cls, accuracy: float, loss: float, wanted_arl: float) -> LossChart:
        """The chart for a loss of `loss` from `accuracy`.

        Where no limit gives `wanted_arl`, `arl` is less, and that is logged.
        """
        # Where nothing was ever wrong, one answer in a few hundred may yet be.
        failing = max(1.0 - accuracy, _LEAST_FAILING)
        worse = min(failing + loss, 1.0 - 1e-6)
        rise = math.log(worse / failing)
        fall = -math.log((1.0 - worse) / (1.0 - failing))
        up = max(1, round(rise / fall))
        limit, arl = run_length.bernoulli_limit(failing, up, wanted_arl, _MOST_STATES)
        if arl < wanted_arl:
            log.warning(
                "golden_false_alarms_oftener",
                accuracy=accuracy,
                loss=loss,
                wanted_samples=wanted_arl,
                achieved_samples=round(arl),
                remedy="raise loss, or lower samples_per_false_alarm",
            )
        return cls(up, limit, arl)

    def step(self, level: int, *, right: bool) -> int:
        """The level after one more answer; no higher than the limit."""
        return min(max(0, level + (-1 if right else self.up)), self.limit)


def loss_chart(settings: GoldenSettings, accuracy: float) -> LossChart:
    """The chart that the settings ask for."""
    return LossChart.of(accuracy, settings.loss, settings.samples_per_false_alarm)
