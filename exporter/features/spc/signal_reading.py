"""Reads one sample of a signal from the exposed samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from exporter.samples import HistogramSample, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from exporter.features.spc.spc_settings import SignalSettings
    from exporter.samples import AnySample


@dataclass(frozen=True, slots=True)
class _Totals:
    at: float
    whole: float
    part: float


class Reader:
    """Reads one signal; keeps the previous values of rates."""

    def __init__(self, settings: SignalSettings) -> None:
        self._settings = settings
        self._before: _Totals | None = None
        self.ambiguous = 0
        """Number of series that matched a gauge in the latest reading, if too many; else 0."""

    def read(self, exposed: Iterable[AnySample], now: float) -> float | None:
        """Return the current sample, or None."""
        fitting = [sample for sample in exposed if self._fits(sample)]
        self.ambiguous = 0
        if not fitting:
            self._before = None
            return None
        first = fitting[0]
        if isinstance(first, Sample) and first.spec.kind != "counter":
            if len(fitting) > 1:
                self.ambiguous = len(fitting)
                return None
            return float(first.value)
        return self._risen(self._totals(fitting, now))

    def _fits(self, sample: AnySample) -> bool:
        settings = self._settings
        return sample.spec.name == settings.metric and _has(sample, settings.labels)

    def _totals(self, fitting: Iterable[AnySample], now: float) -> _Totals:
        whole = part = 0.0
        for sample in fitting:
            if isinstance(sample, HistogramSample):
                whole += sample.histogram.count
                part += sample.histogram.sum
            elif isinstance(sample, Sample):
                whole += sample.value
                part += sample.value if _has(sample, self._settings.part) else 0.0
            else:
                whole += sample.count
                part += sample.sum
        return _Totals(now, whole, part)

    def _risen(self, totals: _Totals) -> float | None:
        before, self._before = self._before, totals
        if before is None or totals.at <= before.at or totals.whole < before.whole:
            return None
        rise = totals.whole - before.whole
        is_counter = self._settings.metric.endswith("_total")
        if is_counter and not self._settings.part:
            return rise / (totals.at - before.at)
        # The share or the mean of the increase; unknown without one.
        return (totals.part - before.part) / rise if rise else None


def _has(sample: AnySample, labels: Mapping[str, str]) -> bool:
    return all(
        sample.labels[sample.spec.labels.index(name)] == value
        for name, value in labels.items()
    )
