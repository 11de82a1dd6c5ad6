"""From one look at Triton's cumulative statistics to the next: production's share.

Triton counts every request, ours too, and starts over when a model or the server is
reloaded. Between two looks the rise of each counter is taken, our own part subtracted,
the rest added to totals that never fall.

How our own part is known: the ledger counts our requests exactly, but Triton books one
a moment before or after we see its answer. So while one is in flight, one of the rise is
held back until the next look; and a finished one that has not appeared yet is waited for
during one further look: after that it was merged into a batch, answered from the cache or
lost with a restart. Times cannot be known request by request: ours are taken at the mean
of the look, for executions at the mean of batch size 1, which is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter.own_traffic import OwnCounts
from exporter.triton.model import Duration, ModelStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping

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


@dataclass(slots=True)
class OwnShare:
    """Splits a counter's rise into ours and production's."""

    taken: int = 0
    finished_before: int = 0
    held: int = 0

    def production(self, finished: int, in_flight: int, rise: int) -> int:
        """Production's part of `rise`, given our requests finished and in flight now.

        As many as are in flight are held back until the next look decides.
        """
        # Finished before the last look and still not seen: not to be waited for.
        self.taken = max(self.taken, self.finished_before)
        self.finished_before = finished
        pool = rise + self.held
        ours = max(0, min(finished - self.taken, pool))
        self.taken += ours
        self.held = min(in_flight, pool - ours)
        return pool - ours - self.held


class Production:
    """Totals of one model version."""

    def __init__(self, own: OwnCounts) -> None:
        self.totals = Totals()
        self.resets = 0
        self._success = OwnShare(own.ok, own.ok)
        self._failure = OwnShare(own.failed, own.failed)
        self._inferences = OwnShare(own.ok, own.ok)
        self._singles = OwnShare(own.ok, own.ok)

    def advance(
        self, before: ModelStatistics | None, after: ModelStatistics, own: OwnCounts
    ) -> None:
        """Add what happened between two looks; `before` None is a model's first."""
        if before is None or _started_over(before, after):
            self.resets += before is not None
            before = ModelStatistics(after.name, after.version)
        self._requests(before, after, own)
        self._executions(before, after, own)

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
            own.ok, own.in_flight, inferences
        )
        share = kept / success.count if success.count else 1.0
        totals.request_ns += success.ns * share
        totals.queue_ns += _rise(before.queue, after.queue).ns * share
        for phase in PHASES:
            rise = _rise(getattr(before, phase), getattr(after, phase))
            totals.compute_ns[phase] += rise.ns * share

    def _executions(
        self, before: ModelStatistics, after: ModelStatistics, own: OwnCounts
    ) -> None:
        totals = self.totals
        earlier = {batch.batch_size: batch for batch in before.batches}
        for batch in after.batches:
            old = earlier.get(batch.batch_size)
            rises = [
                _rise(getattr(old, phase) if old else Duration(), getattr(batch, phase))
                for phase in PHASES
            ]
            executions = rises[PHASES.index("compute_infer")].count
            # Our requests have a batch of one. One that was merged into a larger batch
            # ran on production's account and costs it next to nothing.
            kept = (
                self._singles.production(own.ok, own.in_flight, executions)
                if batch.batch_size == 1
                else executions
            )
            totals.executions += kept
            totals.batches[batch.batch_size] = (
                totals.batches.get(batch.batch_size, 0) + kept
            )
            share = kept / executions if executions else 1.0
            totals.busy_ns += sum(rise.ns for rise in rises) * share


def _rise(before: Duration, after: Duration) -> Duration:
    return Duration(max(0, after.count - before.count), max(0, after.ns - before.ns))


def _started_over(before: ModelStatistics, after: ModelStatistics) -> bool:
    return (
        after.success.count < before.success.count
        or after.fail.count < before.fail.count
        or after.inference_count < before.inference_count
        or after.execution_count < before.execution_count
    )


def cross_checked(entry: ModelStatistics) -> Mapping[str, int]:
    """The counters that Triton's metrics page repeats, by `statistics_field`."""
    return {
        "success": entry.success.count,
        "failure": entry.fail.count,
        "inferences": entry.inference_count,
        "executions": entry.execution_count,
    }
