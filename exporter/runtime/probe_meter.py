"""Totals over the verdicts of one probe."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from exporter import catalogue
from exporter.access.probe_base import Target, Verdict
from exporter.catalogue.probe_outcomes import MEANINGS, OUTCOMES
from exporter.histograms.histogram import Histogram
from exporter.histograms.quantiles import supports
from exporter.histograms.windowed_histogram import WindowedHistogram
from exporter.samples import Exemplar, HistogramSample, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporter.access.inventory import ModelKey
    from exporter.catalogue.probe_outcomes import Outcome
    from exporter.samples import AnySample

_WINDOW_SLOTS: Final = 30


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """The latest of one target, for people."""

    target: Target
    verdict: Verdict
    at: float


@dataclass(slots=True)
class _Record:
    window: WindowedHistogram
    histogram: Histogram = field(default_factory=Histogram)
    first_responses: Histogram = field(default_factory=Histogram)
    gaps: Histogram = field(default_factory=Histogram)
    outcomes: Counter[str] = field(default_factory=Counter)
    verdict: Verdict | None = None
    at: float = 0.0
    exemplars: dict[int, Exemplar] = field(default_factory=dict)
    quantiles: tuple[tuple[float, float], ...] = ()
    """(q, seconds) of the window at the latest probe."""


class ProbeMeter:
    """Histograms and counts by target. Written by workers, read by scrapes."""

    def __init__(
        self, probe: str, window_seconds: float, wall_clock: Callable[[], float]
    ) -> None:
        self._probe = probe
        self._window_seconds = window_seconds
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._records: dict[Target, _Record] = {}

    def record(self, target: Target, verdict: Verdict, now: float) -> None:
        """Add one verdict; `now` is monotonic seconds."""
        with self._lock:
            record = self._record(target)
            if not verdict.is_repeated:
                record.outcomes[verdict.outcome] += 1
            if verdict.outcome == "late":
                # It shows nothing: an earlier verdict counts until it is too old.
                return
            record.verdict, record.at = verdict, now
            if verdict.duration_seconds is not None:
                self._time(record, verdict.duration_seconds, verdict.request_id, now)
            if verdict.first_response_seconds is not None:
                record.first_responses.record(verdict.first_response_seconds)
                for seconds in verdict.gap_seconds:
                    record.gaps.record(seconds)

    def overdue(self, target: Target, timeout_seconds: float, now: float) -> None:
        """Record that an answer is late; its verdict counts it later."""
        detail = f"no answer within {timeout_seconds:g} s; it is still waited for"
        with self._lock:
            record = self._record(target)
            record.verdict, record.at = Verdict("timeout", detail=detail), now

    def _record(self, target: Target) -> _Record:
        record = self._records.get(target)
        if record is None:
            record = _Record(WindowedHistogram(self._window_seconds, _WINDOW_SLOTS))
            self._records[target] = record
        return record

    def _time(
        self, record: _Record, seconds: float, request_id: str, now: float
    ) -> None:
        record.histogram.record(seconds)
        record.window.record(seconds, now)
        # Here and not at the scrape, which would pay for a thousand targets at once.
        record.quantiles = tuple(_quantiles(record.window.snapshot(now)))
        bounds = catalogue.PROBE_DURATION.buckets
        place = sum(bound < seconds for bound in bounds)
        record.exemplars[place] = Exemplar(
            seconds, self._wall_clock(), {"request_id": request_id}
        )

    def keep(self, targets: set[Target]) -> None:
        """Forget every target that is not among `targets`."""
        with self._lock:
            for target in self._records.keys() - targets:
                del self._records[target]

    def statuses(self) -> list[TargetStatus]:
        """The latest verdict of every target."""
        with self._lock:
            return [
                TargetStatus(target, record.verdict, record.at)
                for target, record in self._records.items()
                if record.verdict is not None
            ]

    def samples(self, now: float, fresh_seconds: float) -> list[AnySample]:
        """Return all series; targets not probed within `fresh_seconds` have none."""
        with self._lock:
            samples: list[AnySample] = []
            for target, record in self._records.items():
                labels = (*target.key, target.protocol, self._probe)
                samples += _counted(labels, record)
                if record.verdict is None or now - record.at > fresh_seconds:
                    continue
                succeeded = MEANINGS[record.verdict.outcome].succeeded
                if succeeded is not None:
                    samples.append(Sample(catalogue.PROBE_SUCCESS, succeeded, labels))
                samples += [
                    Sample(catalogue.PROBE_LATENCY, value, (*labels, str(q)))
                    for q, value in record.quantiles
                ]
        return samples

    def serving(self, now: float, fresh_seconds: float) -> dict[ModelKey, bool]:
        """Return whether the latest probe of every protocol went through, by model version.

        A model whose probes prove nothing is left out.
        """
        serving: dict[ModelKey, bool] = {}
        for status in self._fresh(now, fresh_seconds):
            ok, key = MEANINGS[status.verdict.outcome].serves, status.target.key
            if ok is not None:
                serving[key] = serving.get(key, True) and ok
        return serving

    def latest(
        self, outcome: Outcome, now: float, fresh_seconds: float
    ) -> dict[ModelKey, str]:
        """Return the details of the latest verdicts with this outcome, by model version."""
        return {
            status.target.key: status.verdict.detail
            for status in self._fresh(now, fresh_seconds)
            if status.verdict.outcome == outcome
        }

    def _fresh(self, now: float, fresh_seconds: float) -> Iterator[TargetStatus]:
        return (s for s in self.statuses() if now - s.at <= fresh_seconds)


def _counted(labels: tuple[str, ...], record: _Record) -> Iterator[AnySample]:
    for outcome in OUTCOMES:
        yield Sample(
            catalogue.PROBE_TOTAL, record.outcomes[outcome], (*labels, outcome)
        )
    yield HistogramSample(
        catalogue.PROBE_DURATION,
        record.histogram.copy(),
        labels,
        tuple(record.exemplars.values()),
    )
    # Absent, and not empty, of models that do not stream.
    if record.first_responses.count:
        streamed = (
            (catalogue.PROBE_FIRST_RESPONSE, record.first_responses),
            (catalogue.PROBE_RESPONSE_GAP, record.gaps),
        )
        for spec, histogram in streamed:
            yield HistogramSample(spec, histogram.copy(), labels)


def _quantiles(histogram: Histogram) -> Iterator[tuple[float, float]]:
    for q in catalogue.QUANTILES:
        # Absent, not guessed, where the count cannot bound the quantile on both sides.
        value = histogram.quantile(q) if supports(histogram.count, q) else None
        if value is not None:
            yield q, value
