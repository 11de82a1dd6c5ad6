"""Reads the sample of one signal from all exposed samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from exporter.access.source_reads import ReadAgain, with_read_times
from exporter.samples import HistogramSample, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from exporter.features.spc.spc_settings import SignalSettings
    from exporter.samples import AnySample


class _Total(NamedTuple):
    """One series of a signal; of a histogram, its count and sum."""

    whole: float
    part: float
    read_at: float


class Reader:
    """Reads one signal; keeps the previous values of rates."""

    def __init__(self, settings: SignalSettings) -> None:
        self._settings = settings
        self._before: dict[tuple[str, ...], _Total] = {}
        self._gauges = ReadAgain()
        self.ambiguous = 0
        """Number of series that matched a gauge in the latest reading, if too many; else 0."""

    def read(self, exposed: Iterable[AnySample], now: float) -> float | None:
        """Return the current sample, or None; a source gives one each time it is read."""
        fitting = [
            (sample, read_at)
            for sample, read_at in with_read_times(exposed, now)
            if self._fits(sample)
        ]
        self.ambiguous = 0
        if not fitting:
            self._before = {}
            return None
        first, read_at = fitting[0]
        if isinstance(first, Sample) and first.spec.kind != "counter":
            if len(fitting) > 1:
                self.ambiguous = len(fitting)
                return None
            is_new = self._gauges.add({first.labels: read_at})
            return float(first.value) if is_new else None
        return self._risen(
            {
                sample.labels: self._total(sample, read_at)
                for sample, read_at in fitting
                if read_at is not None
            }
        )

    def _fits(self, sample: AnySample) -> bool:
        settings = self._settings
        return sample.spec.name == settings.metric and _has(sample, settings.labels)

    def _total(self, sample: AnySample, read_at: float) -> _Total:
        if isinstance(sample, HistogramSample):
            return _Total(sample.histogram.count, sample.histogram.sum, read_at)
        if isinstance(sample, Sample):
            part = sample.value * _has(sample, self._settings.part)
            return _Total(sample.value, part, read_at)
        return _Total(sample.count, sample.sum, read_at)

    def _risen(self, totals: dict[tuple[str, ...], _Total]) -> float | None:
        """Return the reading over the series that were there at the reading before."""
        pairs = [
            (self._before[series], now)
            for series, now in totals.items()
            if series in self._before
        ]
        if any(now.read_at == before.read_at for before, now in pairs):
            # A source was not read again: the next reading covers this time too.
            return None
        self._before = totals
        if not pairs or any(
            now.read_at < before.read_at or now.whole < before.whole
            for before, now in pairs
        ):
            return None
        if self._settings.metric.endswith("_total") and not self._settings.part:
            return sum(
                (now.whole - before.whole) / (now.read_at - before.read_at)
                for before, now in pairs
            )
        # The share or the mean of the increase; unknown without one.
        rise = sum(now.whole - before.whole for before, now in pairs)
        part = sum(now.part - before.part for before, now in pairs)
        return part / rise if rise else None


def _has(sample: AnySample, labels: Mapping[str, str]) -> bool:
    return all(
        sample.labels[sample.spec.labels.index(name)] == value
        for name, value in labels.items()
    )
