"""Retraining forecast: series of estimated accuracy and of drift, and their trends."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from drift import codec
from drift.errors import UNREADABLE, StateError
from drift.forecast import Outlook, forecast

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from drift.forecast import Forecast
    from exporter.features.drift.drift_settings import DriftForecastSettings
    from exporter.features.drift.drift_watch import WindowResult

    Floats = NDArray[np.float64]

KIND: Final = "outlook"
VERSION: Final = 1
ACCURACY: Final = "accuracy"
PSI: Final = "psi"

_MOST_POINTS: Final = 512
_SEED: Final = 0


@dataclass(frozen=True, slots=True)
class Eta:
    """Seconds until the floor or limit is crossed: a 90 % interval and its median."""

    lower: float
    median: float
    upper: float
    effective_periods: float
    """Independent periods of the history that would give the same interval."""


class _Series:
    """Means over equal periods of time, the latest `_MOST_POINTS` of them."""

    def __init__(
        self, floor: float, scale: Callable[[Floats], Floats] = lambda values: values
    ) -> None:
        self.points: deque[float] = deque(maxlen=_MOST_POINTS)
        self.forecast: Forecast | None = None
        self._floor = floor
        self._scale = scale
        self._open: list[float] = [0.0, 0.0]

    def note(self, value: float) -> None:
        self._open[0] += value
        self._open[1] += 1

    def close(self) -> None:
        total, number = self._open
        self._open = [0.0, 0.0]
        # A period without a value is a gap, never a zero.
        self.points.append(total / number if number else math.nan)
        self.foresee()

    def foresee(self) -> None:
        self.forecast = forecast(
            self._scale(np.array(self.points)),
            float(self._scale(np.array(self._floor))),
            # The same points give the same forecast, on every replica.
            np.random.default_rng(_SEED),
        )


class Outlooks:
    """The forecasts of one model; without settings there are none."""

    def __init__(
        self, settings: DriftForecastSettings | None, clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._series: dict[str, _Series] = {}
        self._every = math.inf
        self._latest: WindowResult | None = None
        if settings is not None:
            self._every = settings.every_seconds
            if settings.accuracy_floor is not None:
                self._series[ACCURACY] = _Series(settings.accuracy_floor)
            if settings.psi_limit is not None:
                self._series[PSI] = _Series(settings.psi_limit, _negated_root)
        self._due = clock() + self._every

    def add(self, latest: WindowResult | None, accuracy: float | None) -> None:
        """Record the latest window and the accuracy estimated now."""
        if not self._series:
            return
        if (
            accuracy is not None
            and math.isfinite(accuracy)
            and ACCURACY in self._series
        ):
            self._series[ACCURACY].note(accuracy)
        if latest is not self._latest and latest is not None and PSI in self._series:
            effect = _worst_psi(latest)
            if effect is not None:
                self._series[PSI].note(effect)
        self._latest = latest
        now = self._clock()
        while now >= self._due:
            for series in self._series.values():
                series.close()
            # After a long pause, one gap represents all missed periods.
            self._due = max(self._due + self._every, now - self._every)

    @property
    def forecasts(self) -> dict[str, Forecast]:
        """Return the forecasts by signal, where there is enough data."""
        return {
            name: series.forecast
            for name, series in self._series.items()
            if series.forecast is not None
        }

    @property
    def eta(self) -> Eta | None:
        """The earliest forecast crossing, None without one."""
        found = [f for f in self.forecasts.values() if f.outlook is Outlook.DECAY]
        if not found:
            return None
        first = min(found, key=lambda f: f.middle)
        return Eta(
            first.low * self._every,
            first.middle * self._every,
            first.high * self._every,
            first.effective_windows,
        )

    def state(self) -> bytes:
        """Return the points so far, as bytes for a state file."""
        points = {
            name: [None if math.isnan(v) else v for v in series.points]
            for name, series in self._series.items()
        }
        return codec.encode(
            KIND, VERSION, {"points": points, "every_seconds": self._every}
        )

    def restore(self, data: bytes) -> None:
        """Restore what `state` returned.

        Raises:
            StateError: the bytes are foreign, damaged, or of another time scale.
        """
        payload = codec.decode(data, KIND, VERSION)
        try:
            if float(payload["every_seconds"]) != self._every:
                raise StateError(
                    f"points {payload['every_seconds']} s apart; want {self._every:g} s"
                )
            restored = {
                name: [math.nan if v is None else float(v) for v in values]
                for name, values in payload["points"].items()
            }
        except UNREADABLE as error:
            raise StateError(f"cannot read the points: {error!r}") from error
        for name, series in self._series.items():
            series.points.clear()
            series.points.extend(restored.get(name, ()))
            if series.points:
                series.foresee()


def _negated_root(psi: Floats) -> Floats:
    """Return -sqrt(PSI), which falls linearly while data shift steadily."""
    return np.asarray(-np.sign(psi) * np.sqrt(np.abs(psi)), np.float64)


def _worst_psi(result: WindowResult) -> float | None:
    """Return the largest PSI of a column, minus its mean without change."""
    # Of the joint feature there are batches, too few of them for a steady PSI.
    columns = result.total.values == result.total.rows
    for score in result.scores:
        if score.name == PSI:
            excess = (score.distance - score.null.mean)[columns]
            finite = excess[np.isfinite(excess)]
            return float(finite.max()) if finite.size else None
    return None
