"""Runs every collector and probe under a deadline and meters the outcome.

One that fails or hangs costs its own samples only: they disappear after two intervals,
`tritonwatch_collector_*` says so, and nothing else waits. The only broad `except` of
the project is here: whatever a collector raises must not end the process.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog

from exporter import catalogue, errors
from exporter.access.readiness import GIVE_UP_SECONDS
from exporter.samples import BucketSample, HistogramSample, ReadTime, Sample
from exporter.system.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from exporter.access.collector_base import Collector, CollectorSettings
    from exporter.samples import AnySample

log = structlog.get_logger()

STALE_INTERVALS: Final = 2
_FAILING_SECONDS: Final = 60.0
"""Time without a success after which a failing collector is reported as a problem."""
LANDING_SECONDS: Final = 2.0
"""Seconds for which shutdown waits for a run in flight that is not late yet: cleanup
should not run beside it.
"""


@dataclass(frozen=True, slots=True)
class RunnerStatistics:
    """Result of the latest run. `success` is None before the first one ended."""

    success: bool | None = None
    duration_seconds: float = 0.0
    last_success_timestamp_seconds: float | None = None
    last_read_timestamp_seconds: float | None = None
    """Time of the latest run that succeeded or gave a partial result."""
    last_success_at: float = 0.0
    """The same as its timestamp, in monotonic seconds."""
    last_read_at: float = 0.0
    series_dropped: int = 0
    failure: str = ""


class Meter:
    """Outcome of the runs of one collector or probe, as samples."""

    def __init__(
        self, name: str, clock: Callable[[], float], wall_clock: Callable[[], float]
    ) -> None:
        self.name = name
        self.statistics = RunnerStatistics()
        self._clock = clock
        self._wall_clock = wall_clock
        self._logged_failure = ""

    @property
    def fails(self) -> bool:
        """True if it fails, and has not wholly succeeded for a while."""
        latest = self.statistics
        old = self._clock() - latest.last_success_at > _FAILING_SECONDS
        return latest.success is False and old

    def succeeded(self, duration_seconds: float, dropped: int = 0) -> None:
        """A run did its work."""
        if self.statistics.success is False:
            log.info("collector_recovered", collector=self.name)
        now, at = self._wall_clock(), self._clock()
        self.statistics = RunnerStatistics(
            success=True,
            duration_seconds=duration_seconds,
            last_success_timestamp_seconds=now,
            last_read_timestamp_seconds=now,
            last_success_at=at,
            last_read_at=at,
            series_dropped=self.statistics.series_dropped + dropped,
        )

    def failed(self, duration_seconds: float, failure: str) -> None:
        """A run failed; said once in the log until it works again."""
        if self.statistics.success is not False:
            log.warning("collector_failed", collector=self.name, reason=failure)
        self.statistics = replace(
            self.statistics,
            success=False,
            duration_seconds=duration_seconds,
            failure=failure,
        )

    def partial(self, duration_seconds: float, failure: str, dropped: int = 0) -> None:
        """A run read only a part of its source."""
        self.failed(duration_seconds, failure)
        self.statistics = replace(
            self.statistics,
            last_read_timestamp_seconds=self._wall_clock(),
            last_read_at=self._clock(),
            series_dropped=self.statistics.series_dropped + dropped,
        )

    def broken(self, duration_seconds: float, error: Exception) -> None:
        """A run failed as none should; its traceback is in the log once in a row."""
        failure = f"{type(error).__name__}: {error}"
        if failure != self._logged_failure:
            self._logged_failure = failure
            log.error("collector_broken", collector=self.name, exc_info=error)
        self.failed(duration_seconds, failure)

    def dropped(self, series: int) -> None:
        """Count series over the budget."""
        if series:
            total = self.statistics.series_dropped + series
            self.statistics = replace(self.statistics, series_dropped=total)

    def samples(self) -> list[AnySample]:
        """tritonwatch_collector_*, nothing before the first run has ended."""
        statistics, labels = self.statistics, (self.name,)
        samples: list[AnySample] = [
            Sample(catalogue.SERIES_DROPPED, statistics.series_dropped, labels)
        ]
        if statistics.success is None:
            return samples
        samples += [
            Sample(catalogue.COLLECTOR_DURATION, statistics.duration_seconds, labels),
            Sample(catalogue.COLLECTOR_SUCCESS, statistics.success, labels),
        ]
        samples += [
            ReadTime(spec, seconds, labels, at=at)
            for spec, seconds, at in (
                (
                    catalogue.COLLECTOR_TIMESTAMP,
                    statistics.last_success_timestamp_seconds,
                    statistics.last_success_at,
                ),
                (
                    catalogue.COLLECTOR_READ_TIMESTAMP,
                    statistics.last_read_timestamp_seconds,
                    statistics.last_read_at,
                ),
            )
            if seconds is not None
        ]
        return samples


_Collected: TypeAlias = (
    "tuple[Sequence[AnySample], int, errors.PartialResultError | None]"
)
_Run: TypeAlias = "asyncio.Future[_Collected]"


class CollectorRunner:
    """One collector on its own thread, at a fixed rate, never overlapping itself."""

    def __init__(
        self,
        name: str,
        settings: CollectorSettings,
        collector: Collector,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        held_up: Callable[[float], bool] = lambda _since: False,
    ) -> None:
        """`held_up` says whether our own doing delayed the server since an instant."""
        self.settings = settings
        self.meter = Meter(name, clock, wall_clock)
        self._held_up = held_up
        self._collector = collector
        self._clock = clock
        self._samples: Sequence[AnySample] = ()
        self._collected_at = clock()
        self._in_flight: _Run | None = None
        self._started_at = clock()

    async def run(self) -> None:
        """Collect for ever; ends by cancellation, after the run in flight if it can."""
        workers = Workers(1, f"collector-{self.meter.name}")
        due = self._clock()
        try:
            while True:
                await self._collect_once(workers)
                due = max(due + self.settings.interval_seconds, self._clock())
                await asyncio.sleep(due - self._clock())
        finally:
            workers.close()
            await self._land()

    def samples(self, now: float) -> list[AnySample]:
        """The latest samples while they are fresh, and how the runs went."""
        age = now - self._collected_at
        fresh = age <= STALE_INTERVALS * self.settings.interval_seconds
        return [*(self._samples if fresh else ()), *self.meter.samples()]

    async def _land(self) -> None:
        if self._in_flight is None or self._in_flight.done():
            return
        left = self._started_at + self.settings.deadline_seconds - self._clock()
        await asyncio.wait(
            {self._in_flight}, timeout=min(max(left, 0), LANDING_SECONDS)
        )

    async def _collect_once(self, workers: Workers) -> None:
        started = self._started_at = self._clock()
        try:
            run = self._in_flight = workers.submit(self._collect)
        except RuntimeError as error:  # the limit of the pod's processes, say
            self.meter.failed(0.0, str(error))
            return
        deadline = self.settings.deadline_seconds
        done, _ = await asyncio.wait({run}, timeout=deadline)
        if not done:
            since = started
            while (
                not done
                and since - started <= GIVE_UP_SECONDS
                and self._keep_held_up(since)
            ):
                since = self._clock()
                done, _ = await asyncio.wait({run}, timeout=deadline)
            if not done:
                waited = since - started + deadline
                self.meter.failed(waited, f"no result within {waited:.3g} s")
            # The thread cannot be stopped; the next run must not pile up behind it.
            await asyncio.wait({run})
            if not run.cancelled():
                run.exception()
            return
        self._note(run, started)

    def _note(self, run: _Run, started: float) -> None:
        """Keep the result of a run that ended in time."""
        duration = self._clock() - started
        try:
            kept, dropped, partial = run.result()
        except errors.SourceError as error:
            late = isinstance(error, errors.DeadlineError)
            if not (late and self._keep_held_up(started)):
                self.meter.failed(duration, str(error))
        except Exception as error:  # noqa: BLE001 - metered, and logged once
            self.meter.broken(duration, error)
        else:
            self._samples, self._collected_at = kept, self._clock()
            if partial is None:
                self.meter.succeeded(duration, dropped)
            else:
                self.meter.partial(duration, str(partial), dropped)

    def _keep_held_up(self, started: float) -> bool:
        """Keep the last samples fresh if one of our own readiness requests delayed the answer."""
        if self.meter.statistics.success is None or not self._held_up(started):
            return False
        self._collected_at = self._clock()
        return True

    def _collect(self) -> _Collected:
        partial = None
        try:
            samples = self._collector.collect()
        except errors.PartialResultError as error:
            partial, samples = error, error.samples
        for sample in samples:
            _check(sample)
        return *within_budget(samples, self.settings.series_limit), partial


def _check(sample: AnySample) -> None:
    """Raise for samples that would fail the whole page at the next scrape.

    Raises:
        ValueError: it is not in the catalogue, or differs from its declaration there.
    """
    spec, labels = sample.spec, sample.labels
    if _CATALOGUE.get(spec.name) is not spec:
        raise ValueError(f"found metric {spec.name!r}, which is not in the catalogue")
    if len(labels) != len(spec.labels) or not all(isinstance(v, str) for v in labels):
        raise ValueError(f"{spec.name} takes the labels {spec.labels}; found {labels}")
    if isinstance(sample, Sample):
        float(sample.value)


_CATALOGUE: Final = {spec.name: spec for spec in catalogue.CATALOGUE}


def within_budget(
    samples: Sequence[AnySample], limit: int
) -> tuple[Sequence[AnySample], int]:
    """The samples that fit into `limit` series, and how many series were dropped."""
    used = 0
    for place, sample in enumerate(samples):
        size = _series(sample)
        if used + size > limit:
            return samples[:place], sum(map(_series, samples[place:]))
        used += size
    return samples, 0


def _series(sample: AnySample) -> int:
    if isinstance(sample, HistogramSample | BucketSample):
        return len(sample.spec.buckets) + 3
    return 1
