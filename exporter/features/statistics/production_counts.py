"""Production's share of the increase between two reads of Triton's statistics.

Triton counts every request, including ours, and restarts its counters when a model or the
server is reloaded. At each read, the increase of each counter less our own part is added
to totals that never fall.

How our own part is known: the ledger counts our requests exactly, but Triton counts one
shortly before or after we see its answer, and the ledger is read after the statistics.
For each request in flight, one request of the increase is held back until the next read.
A finished request that Triton has not counted yet is expected in the next read. If it is
missing there, it never appears: it was merged into a batch, answered from the cache or lost
in a restart. A request that we gave up on is expected for longer: a slow model may still
finish it, and a server that was frozen processes what is in its sockets (of HTTP, all).

With F finished requests of ours and I in flight, each of them counted at the latest one
read after the one that saw it finish, O <= F + I of a counter's sum S are ours. So
S - F - I is a lower bound of production, and exact once nothing is in flight. The totals
are the highest such bound so far: never too high, and exact as soon as we pause. A request
of ours that is never counted (merged, cached) costs production one, once.

At a reset, production since the last read before it is lost and cannot be determined. Of
our requests, those that were finished when a read found no server belong to that server,
and all others to the next one: the counts after a restart are exact. Requests that were
held back are lost, and one for each of ours that was answered but not counted at the last
read. If no read found the server down, as when a model is reloaded, our requests since the
last read before it are expected among the next requests, and may cost production as many.

Requests that cannot be attributed (`OwnCounts.possible`, and `unresolved` ones) are left
out of the totals once they appear, and count as unattributed: production is at least the
totals, and at most the sum of both. Such a request is a success, a failure or neither. It
is matched with both once Triton has certainly counted it: one read after the one that saw
it end. Ours are matched in the order in which they ended, so that without other clients
nothing is left over.

Times are not known by request: ours count with the mean of the read, for executions with
the mean of their batch size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter.access.own_traffic import NOTHING, Booking
from exporter.features.statistics.own_share import OwnShare
from exporter.triton.protocol_types import BatchStatistics, Duration, ModelStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporter.access.own_traffic import OwnCounts

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
    unattributed: int = 0
    """Requests that are production's or ours, and in none of the numbers above."""
    failures_booked_as_success: int = 0
    """Our requests that were answered with an error but counted as a success."""


class Production:
    """Totals of one model version. `own` are our requests that its counters include."""

    def __init__(self, own: OwnCounts) -> None:
        self.totals = Totals()
        self.resets = 0
        self.all_busy_ns = 0
        """Busy time of every execution, ours included, by which energy is divided."""
        self._success = OwnShare(own.done.requests, own.unresolved.requests)
        self._failure = OwnShare(0, own.unresolved.failures)
        self._inferences = OwnShare(own.done.inferences, own.unresolved.inferences)
        self._batches = {
            size: OwnShare(own.done.executions(size), own.unresolved.executions(size))
            for size in {*own.done.batches, *own.unresolved.batches}
        }
        self._spare = self._served = 0
        self._failures_over = self._failures_resolved = 0
        self._ended = self._due = _Ended.at(own)
        """Our requests with uncertain counts: up to this read, and to the one before."""

    def rebased(self, own: OwnCounts) -> Production:
        """Return the same totals, to be continued from counters that include `own`."""
        fresh = Production(own)
        fresh.totals, fresh.resets = self.totals, self.resets
        fresh.all_busy_ns = self.all_busy_ns
        return fresh

    def advance(
        self,
        before: ModelStatistics | None,
        after: ModelStatistics,
        own: OwnCounts,
        own_before: OwnCounts | None = None,
        own_when_gone: OwnCounts | None = None,
        *,
        is_new_server: bool = False,
    ) -> None:
        """Add the increase between two reads; `before` is None for a model's first.

        `own` is the ledger after the later read, `own_before` the one before it, if
        our requests may have ended in between; `own_when_gone` the one when a read
        between the two found no server. `is_new_server` is whether another server than
        before is known to have answered: its counters need not be lower.
        """
        started_over = before is not None and (
            is_new_server or _started_over(before, after)
        )
        if before is None or started_over:
            before = ModelStatistics(*after.key)
        if started_over:
            unresolved = own.unresolved
            for share, count in self._shares(unresolved, unresolved.failures):
                share.give_up(count)
            if own_when_gone is not None:
                self._ended = self._due = _Ended.at(own_when_gone)
                for share, count in self._shares(own_when_gone.done):
                    share.server_gone(count)
        read = self._next_read(own)
        self._requests(before, after, read)
        self._executions(before, after, read)
        if started_over:
            self.resets += 1
            if own_when_gone is None:
                for share, count in self._shares((own_before or own).done):
                    share.started_over(count)

    def _next_read(self, own: OwnCounts) -> _OwnAtRead:
        due, ended = self._ended, _Ended.at(own)
        read = _OwnAtRead(
            own,
            due.possible - self._due.possible,
            own.in_flight + (ended.possible - due.possible),
            due.failed - self._due.failed,
            due.executed - self._due.executed,
        )
        self._due, self._ended = due, ended
        return read

    def _shares(
        self, booking: Booking, failures: int = 0
    ) -> Iterator[tuple[OwnShare, int]]:
        """Yield the share of each counter, and how many of `booking` it counts."""
        yield self._success, booking.requests
        yield self._failure, failures
        yield self._inferences, booking.inferences
        for size in self._batches.keys() | booking.batches.keys():
            share = self._batches.setdefault(size, OwnShare())
            yield share, booking.executions(size)

    def _requests(
        self, before: ModelStatistics, after: ModelStatistics, read: _OwnAtRead
    ) -> None:
        totals, own = self.totals, read.own
        success = _rise(before.success, after.success)
        failure = _rise(before.fail, after.fail)
        inferences = after.inference_count - before.inference_count
        unresolved = own.unresolved.requests
        failed = self._failure.production(
            0,
            read.under_way.failures,
            failure.count,
            own.unresolved.failures,
            read.due.failures,
        )
        kept = self._success.production(
            own.done.requests,
            read.under_way.requests,
            success.count,
            unresolved,
            read.due.requests,
        )
        # A request is a success, or as many failures as Triton counts for one.
        each = own.unresolved.failures // max(1, unresolved)
        self._failure.resolve(self._success.resolved * each)
        self._failures_resolved += self._failure.resolved
        seen, self._failures_resolved = divmod(self._failures_resolved, max(1, each))
        self._success.resolve(seen)
        inferred = self._inferences.production(
            own.done.inferences,
            read.under_way.inferences,
            inferences,
            own.unresolved.inferences,
            read.due.inferences,
        )
        totals.success += kept
        totals.failure += failed
        totals.inferences += inferred
        totals.unattributed += self._success.unattributed + self._failure.unattributed
        totals.failures_booked_as_success += self._booked_as_success(
            read,
            rests=not (
                kept or failed or read.under_way.requests or self._success.missing
            ),
        )
        # An execution for production serves an inference of production, or fails. Those
        # of one read are spare: an inference may be attributed before its execution.
        self._spare = min(self._spare, self._served) + failed + inferred
        self._served = failed + inferred
        share = kept / success.count if success.count else 0.0
        totals.request_ns += success.ns * share
        totals.queue_ns += _rise(before.queue, after.queue).ns * share
        for phase in PHASES:
            rise = _rise(getattr(before, phase), getattr(after, phase))
            totals.compute_ns[phase] += rise.ns * share

    def _booked_as_success(self, read: _OwnAtRead, *, rests: bool) -> int:
        """Return how many of our failed requests Triton counted as successes.

        On an idle server: each that is missing among the failures. Else only those that cannot
        have been refused before they were scheduled.
        """
        failures = read.failed if rests else read.executed
        shown = self._failure.possible_shown
        # A failure may have been taken for another request of ours before, but not while
        # none was under way.
        missing = failures - shown - self._failures_over
        over = max(0, self._failures_over + shown - read.executed)
        self._failures_over = over if read.under_way.requests else 0
        return min(self._success.possible_shown, max(0, missing))

    def _executions(
        self, before: ModelStatistics, after: ModelStatistics, read: _OwnAtRead
    ) -> None:
        earlier = {batch.batch_size: batch for batch in before.batches}
        now = {batch.batch_size: batch for batch in after.batches}
        ours = (read.own.done, read.own.unresolved, read.due)
        sizes = {size for booking in ours for size in booking.batches}
        for size in now.keys() | self._batches.keys() | sizes:
            nothing = BatchStatistics(size, Duration(), Duration(), Duration())
            old, new = earlier.get(size, nothing), now.get(size, nothing)
            self._batch(
                size,
                [_rise(getattr(old, phase), getattr(new, phase)) for phase in PHASES],
                read,
            )

    def _batch(self, size: int, rises: list[Duration], read: _OwnAtRead) -> None:
        totals = self.totals
        executions = rises[PHASES.index("compute_infer")].count
        # One of ours that was merged into a larger batch ran on production's account
        # and cost it next to nothing.
        batches = self._batches.setdefault(size, OwnShare())
        kept = batches.production(
            read.own.done.executions(size),
            read.under_way.executions(size),
            executions,
            read.own.unresolved.executions(size),
            read.due.executions(size),
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


@dataclass(frozen=True, slots=True)
class _Ended:
    """Sums over our requests of which Triton's counting is uncertain."""

    possible: Booking = NOTHING
    failed: int = 0
    executed: int = 0

    @classmethod
    def at(cls, own: OwnCounts) -> _Ended:
        return cls(own.possible, own.failed, own.executed_failures)


@dataclass(frozen=True, slots=True)
class _OwnAtRead:
    """Our own requests at one read."""

    own: OwnCounts
    due: Booking
    """Possible counts of requests that had ended by the previous read."""
    under_way: Booking
    """Requests in flight, or ended with doubt since the previous read."""
    failed: int
    """Requests of `due` that were answered with an error."""
    executed: int
    """Requests of `failed` that cannot have been refused before they were scheduled."""


def _rise(before: Duration, after: Duration) -> Duration:
    return Duration(max(0, after.count - before.count), max(0, after.ns - before.ns))


def _started_over(before: ModelStatistics, after: ModelStatistics) -> bool:
    # Times as well as counts: after a restart a count is soon what it was, a time not.
    return any(
        new < old
        for old, new in zip(counters_of(before), counters_of(after), strict=True)
    )


def counters_of(entry: ModelStatistics) -> Iterator[int]:
    """Yield all counters that only rise while one process serves the model."""
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
