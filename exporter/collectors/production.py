"""From one look at Triton's cumulative statistics to the next: production's share.

Triton counts every request, ours too, and starts over when a model or the server is
reloaded. Between two looks the rise of each counter is taken, our own part subtracted,
the rest added to totals that never fall.

How our own part is known: the ledger counts our requests exactly, but Triton books one
a moment before or after we see its answer, and the ledger is read after the statistics.
So while one is in flight, one of the rise is held back until the next look; and one that
had finished and has not appeared is waited for during the next look. After that it never
will: it was merged into a batch, answered from the cache or lost with a restart.

With F requests of ours finished, I in flight, and every one of them booked by the look
after the one that saw it finish, O <= F + I of a counter's sum S are ours, so that
S - F - I is production at least, and all of it once nothing is in flight. The totals are
the highest such bound so far: never too high, and exact as soon as we pause. A reset
costs at most what both sides did since the last look before it; a request of ours that
is never booked (merged, cached, lost) costs production one, once.

Times cannot be known request by request: ours are taken at the mean of the look, for
executions at the mean of the batch size ours had.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter.triton.model import BatchStatistics, Duration, ModelStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporter.own_traffic import OwnCounts

PHASES = ("compute_input", "compute_infer", "compute_output")


@dataclass(slots=True)
class Totals:
    """Production since this process first saw the model. Nanoseconds are estimates."""

    success: int = 0
    failure: int = 0
    inferences: int = 0
    executions: int = 0
    busy_ns: float = 0
    queue_ns: float = 0
    request_ns: float = 0
    compute_ns: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(PHASES, 0.0)
    )
    batches: dict[int, int] = field(default_factory=dict)


class OwnShare:
    """Splits a counter's rise into ours and production's."""

    def __init__(self, finished: int = 0) -> None:
        self._taken = finished
        self._held = 0
        self._finished_before = (finished, finished)
        """At the look before the last one, and at the last one."""

    def production(self, finished: int, in_flight: int, rise: int) -> int:
        """Production's part of `rise`, given our requests finished and in flight now.

        As many as are in flight are held back until the next look decides.
        """
        before_last, last = self._finished_before
        self._finished_before = (last, finished)
        # Finished at the look before the last and not even booked by the last.
        self._taken = max(self._taken, before_last)
        pool = rise + self._held
        ours = max(0, min(finished - self._taken, pool))
        self._taken += ours
        self._held = min(in_flight, pool - ours)
        return pool - ours - self._held

    def started_over(self) -> None:
        """What is missing now was lost with the counters: it is not waited for."""
        self._taken = max(self._taken, self._finished_before[1])


class Production:
    """Totals of one model version. `own` is what of ours its counters hold already."""

    def __init__(self, own: OwnCounts) -> None:
        self.totals = Totals()
        self.resets = 0
        self._success = OwnShare(own.ok)
        self._failure = OwnShare(own.failed)
        self._inferences = OwnShare(own.inferences)
        sizes = own.batches.keys() | own.raised_batches.keys()
        self._batches = {size: OwnShare(own.executed(size)) for size in sizes}

    def advance(
        self, before: ModelStatistics | None, after: ModelStatistics, own: OwnCounts
    ) -> None:
        """Add what happened between two looks; `before` None is a model's first."""
        started_over = before is not None and _started_over(before, after)
        if before is None or started_over:
            before = ModelStatistics(after.name, after.version)
        self._requests(before, after, own)
        self._executions(before, after, own)
        if started_over:
            self.resets += 1
            for share in self._shares():
                share.started_over()

    def _shares(self) -> Iterator[OwnShare]:
        yield from (self._success, self._failure, self._inferences)
        yield from self._batches.values()

    def _requests(
        self, before: ModelStatistics, after: ModelStatistics, own: OwnCounts
    ) -> None:
        totals = self.totals
        success = _rise(before.success, after.success)
        failure = _rise(before.fail, after.fail)
        inferences = after.inference_count - before.inference_count
        kept = self._success.production(own.ok, own.in_flight, success.count)
        totals.success += kept
        totals.failure += self._failure.production(
            own.failed, own.in_flight, failure.count
        )
        totals.inferences += self._inferences.production(
            own.inferences, own.inferences_in_flight, inferences
        )
        share = kept / success.count if success.count else 0.0
        totals.request_ns += success.ns * share
        totals.queue_ns += _rise(before.queue, after.queue).ns * share
        for phase in PHASES:
            rise = _rise(getattr(before, phase), getattr(after, phase))
            totals.compute_ns[phase] += rise.ns * share

    def _executions(
        self, before: ModelStatistics, after: ModelStatistics, own: OwnCounts
    ) -> None:
        earlier = {batch.batch_size: batch for batch in before.batches}
        now = {batch.batch_size: batch for batch in after.batches}
        for size in now.keys() | self._batches.keys():
            nothing = BatchStatistics(size, Duration(), Duration(), Duration())
            old, new = earlier.get(size, nothing), now.get(size, nothing)
            self._batch(
                size,
                [_rise(getattr(old, phase), getattr(new, phase)) for phase in PHASES],
                own,
            )

    def _batch(self, size: int, rises: list[Duration], own: OwnCounts) -> None:
        totals = self.totals
        executions = rises[PHASES.index("compute_infer")].count
        # One of ours that was merged into a larger batch ran on production's account
        # and cost it next to nothing.
        kept = self._batches.setdefault(size, OwnShare()).production(
            own.executed(size), own.batches_in_flight.get(size, 0), executions
        )
        totals.executions += kept
        totals.batches[size] = totals.batches.get(size, 0) + kept
        share = kept / executions if executions else 0.0
        totals.busy_ns += sum(rise.ns for rise in rises) * share


def _rise(before: Duration, after: Duration) -> Duration:
    return Duration(max(0, after.count - before.count), max(0, after.ns - before.ns))


def _started_over(before: ModelStatistics, after: ModelStatistics) -> bool:
    # Times as well as counts: after a restart a count is soon what it was, a time not.
    return any(new < old for old, new in zip(_all(before), _all(after), strict=True))


def _all(entry: ModelStatistics) -> Iterator[int]:
    yield entry.inference_count
    yield entry.execution_count
    for name in ("success", "fail", "queue", *PHASES, "cache_hit", "cache_miss"):
        duration: Duration = getattr(entry, name)
        yield duration.count
        yield duration.ns


def cross_checked(entry: ModelStatistics) -> Mapping[str, int]:
    """The counters that Triton's metrics page repeats, by `statistics_field`."""
    return {
        "success": entry.success.count,
        "failure": entry.fail.count,
        "inferences": entry.inference_count,
        "executions": entry.execution_count,
    }
