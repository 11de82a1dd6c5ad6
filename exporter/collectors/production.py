"""From one look at Triton's cumulative statistics to the next: production's share.

Triton counts every request, ours too, and starts over when a model or the server is
reloaded. Between two looks the rise of each counter is taken, our own part subtracted,
the rest added to totals that never fall.

How our own part is known: the ledger counts our requests exactly, but Triton books one
a moment before or after we see its answer, and the ledger is read after the statistics.
So while one is in flight, one of the rise is held back until the next look; and one that
had finished and has not appeared is waited for during the next look. After that it never
will: it was merged into a batch, answered from the cache or lost with a restart. One we
gave up on is waited for longer: a slow model finishes it yet, and a server that was frozen
works off what lies in its sockets (of HTTP, all of it).

With F requests of ours finished, I in flight, and every one of them booked by the look
after the one that saw it finish, O <= F + I of a counter's sum S are ours, so that
S - F - I is production at least, and all of it once nothing is in flight. The totals are
the highest such bound so far: never too high, and exact as soon as we pause. A request
of ours that is never booked (merged, cached) costs production one, once.

A reset takes with it what production did since the last look before; nobody can know
that. Of ours, those that were done when a look found no server were that server's, and
all others the next one's: so what comes after a restart is exact. Lost is what was held
back, and one for each of ours that was answered and not yet booked at the last look. Where no look fell into it, as when a model is reloaded, ours since the
last look before it are looked for among the next requests, and may cost production as
many.

Times cannot be known request by request: ours are taken at the mean of the look, for
executions at the mean of the batch size ours had.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from exporter.triton.model import BatchStatistics, Duration, ModelStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporter.own_traffic import OwnCounts

PHASES = ("compute_input", "compute_infer", "compute_output")
UNRESOLVED_LOOKS: Final = 6
"""So many looks a request is waited for that we gave up on."""


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

    def __init__(self, finished: int = 0, unresolved: int = 0) -> None:
        self._taken = finished
        self._held = 0
        self._refused = 0
        self._unresolved_before = unresolved
        self._doubtful: deque[int] = deque(maxlen=UNRESOLVED_LOOKS)
        """Unresolved ones not seen yet, by the look after which we gave up on them."""
        self._finished_before = (finished, finished)
        """At the look before the last one, and at the last one."""

    def production(
        self, finished: int, in_flight: int, rise: int, unresolved: int = 0
    ) -> int:
        """Production's part of `rise`, given our requests finished and in flight now.

        As many as are in flight are held back until the next look decides.
        """
        self._doubtful.append(unresolved - self._unresolved_before)
        self._unresolved_before = unresolved
        before_last, last = self._finished_before
        self._finished_before = (last, finished)
        # Finished at the look before the last and not even booked by the last.
        self._taken = max(self._taken, before_last)
        pool = rise + self._held
        ours = max(0, min(finished - self._taken, pool))
        self._taken += ours
        pool -= ours + self._resolved(pool - ours)
        self._held = min(in_flight, pool)
        return pool - self._held

    @property
    def undecided(self) -> bool:
        """Whether something is held back."""
        return self._held > 0

    def refuse(self, count: int, *, for_now: bool) -> None:
        """So much of what was just said to be production's cannot be, as it looks.

        `for_now` says that it may turn out otherwise. If not, what is refused a second
        time is ours.
        """
        ours = 0 if for_now else min(count, self._refused)
        self._refused = 0 if for_now else count - ours
        self._held += count - ours

    def started_over(self, finished: int) -> None:
        """What of so many is missing was lost with the counters: it is not waited for."""
        self._taken = max(self._taken, finished)

    def server_gone(self, finished: int) -> None:
        """So many were done when it was gone, and what it had booked besides is lost.

        Of what was held back nobody can tell any more whose it was: it is left out.
        """
        self.started_over(finished)
        self._held = self._refused = 0

    def give_up(self, unresolved: int) -> None:
        """So many were asked of a server that is gone."""
        self._doubtful.clear()
        self._unresolved_before = unresolved

    def _resolved(self, most: int) -> int:
        """How many we gave up on show now; the oldest first."""
        left = most
        for place, count in enumerate(self._doubtful):
            self._doubtful[place] = count - min(count, left)
            left -= min(count, left)
        return most - left


class Production:
    """Totals of one model version. `own` is what of ours its counters hold already."""

    def __init__(self, own: OwnCounts) -> None:
        self.totals = Totals()
        self.resets = 0
        self.all_busy_ns = 0
        """Busy time of every execution, ours too: what the energy is spent in."""
        self._success = OwnShare(own.ok, own.unresolved)
        self._failure = OwnShare(own.failed)
        self._inferences = OwnShare(own.inferences, own.inferences_unresolved)
        self._batches = {
            size: OwnShare(own.executed(size), own.unresolved_batches.get(size, 0))
            for size in own.sizes
        }
        self._spare = self._served = 0

    def advance(
        self,
        before: ModelStatistics | None,
        after: ModelStatistics,
        own: OwnCounts,
        own_before: OwnCounts | None = None,
        own_when_gone: OwnCounts | None = None,
    ) -> None:
        """Add what happened between two looks; `before` None is a model's first.

        `own` is the ledger after the later look, `own_before` the one before it, if
        requests of ours can have ended in between; `own_when_gone` the one when a look
        between the two found no server.
        """
        started_over = before is not None and _started_over(before, after)
        if before is None or started_over:
            before = ModelStatistics(after.name, after.version)
        if started_over:
            self._give_up_unresolved(own)
            if own_when_gone is not None:
                self._give_up_gone(own_when_gone)
        self._requests(before, after, own)
        self._executions(before, after, own)
        if started_over:
            self.resets += 1
            if own_when_gone is None:
                self._give_up_lost(own_before or own)

    def _give_up_lost(self, own: OwnCounts) -> None:
        self._success.started_over(own.ok)
        self._failure.started_over(own.failed)
        self._inferences.started_over(own.inferences)
        for size, share in self._batches.items():
            share.started_over(own.executed(size))

    def _give_up_gone(self, own: OwnCounts) -> None:
        self._success.server_gone(own.ok)
        self._failure.server_gone(own.failed)
        self._inferences.server_gone(own.inferences)
        for size, share in self._batches.items():
            share.server_gone(own.executed(size))

    def _give_up_unresolved(self, own: OwnCounts) -> None:
        self._success.give_up(own.unresolved)
        self._inferences.give_up(own.inferences_unresolved)
        for size, share in self._batches.items():
            share.give_up(own.unresolved_batches.get(size, 0))

    def _requests(
        self, before: ModelStatistics, after: ModelStatistics, own: OwnCounts
    ) -> None:
        totals = self.totals
        success = _rise(before.success, after.success)
        failure = _rise(before.fail, after.fail)
        inferences = after.inference_count - before.inference_count
        kept = self._success.production(
            own.ok, own.in_flight, success.count, own.unresolved
        )
        totals.success += kept
        failed = self._failure.production(own.failed, own.in_flight, failure.count)
        totals.failure += failed
        inferred = self._inferences.production(
            own.inferences,
            own.inferences_in_flight,
            inferences,
            own.inferences_unresolved,
        )
        totals.inferences += inferred
        # An execution for production serves an inference of production, or fails. One
        # look's are spare: an inference may be told from ours before its execution.
        self._spare = min(self._spare, self._served) + failed + inferred
        self._served = failed + inferred
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
        for size in now.keys() | self._batches.keys() | own.sizes:
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
        batches = self._batches.setdefault(size, OwnShare())
        kept = batches.production(
            own.executed(size),
            own.batches_in_flight.get(size, 0),
            executions,
            own.unresolved_batches.get(size, 0),
        )
        if kept > self._spare:
            # Two of ours that were merged into one batch, if no more is to come.
            undecided = self._inferences.undecided or self._failure.undecided
            batches.refuse(kept - self._spare, for_now=undecided)
            kept = self._spare
        self._spare -= kept
        totals.executions += kept
        totals.batches[size] = totals.batches.get(size, 0) + kept
        share = kept / executions if executions else 0.0
        busy_ns = sum(rise.ns for rise in rises)
        self.all_busy_ns += busy_ns
        totals.busy_ns += busy_ns * share


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
