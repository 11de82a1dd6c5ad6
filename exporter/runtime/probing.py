"""The schedule of a probe: every target in its turn, within the rate, never twice."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from exporter import catalogue
from exporter.access.probe_base import Telling, Timed, Verdict
from exporter.runtime.health import Meter, within_budget
from exporter.runtime.probe_meter import ProbeMeter
from exporter.samples import Sample
from exporter.system.scheduling_delay import SchedulingDelay
from exporter.system.workers import Workers

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from exporter.access.inventory import Inventory, InventoryBoard, ModelKey
    from exporter.access.probe_base import Probe, ProbeSettings, Target
    from exporter.catalogue.probe_outcomes import Outcome
    from exporter.samples import AnySample

_WORKERS: Final = 32
_SLOW_WORKERS: Final = 24
"""Limit of workers for targets that did not answer last time; the others are reserved
for targets that do."""
_SLOW: Final = frozenset({"timeout", "backlog"})
_SERIES_LIMIT: Final = 50_000
_DROP_SECONDS: Final = 60.0
"""Time after which series over the limit are counted again."""
_GRACE_SECONDS: Final = 5.0
"""Time over its limit after which an attempt counts as stuck."""
_OVERDUE_SECONDS: Final = 0.1
"""Time after its timeout at which an answer is certainly late, our own delay included."""
_LEAST_WAIT_SECONDS: Final = 0.001
"""Shortest wait; shorter ones are rounding errors."""


class ProbeRunner:
    """Probes the targets of one probe, spread evenly over the interval."""

    def __init__(
        self,
        label: str,
        settings: ProbeSettings,
        probe: Probe,
        board: InventoryBoard,
        rng: random.Random,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self.settings = settings
        self.meter = Meter(label, clock, wall_clock)
        self.results = ProbeMeter(label, settings.window_seconds, wall_clock)
        self._label = label
        self._probe = probe
        self._board = board
        self._rng = rng
        self._clock = clock
        self._due: list[tuple[float, int, Target]] = []
        self._known: set[Target] = set()
        self._in_flight: set[Target] = set()
        self._slow: set[Target] = set()
        self._held_back: deque[tuple[float, int, Target]] = deque()
        self._entry: dict[Target, int] = {}
        self._inventory: Inventory | None = None
        self._order = 0
        self._drop_counted_at = -math.inf

    @property
    def interval_seconds(self) -> float:
        """Time between two probes of one target, stretched to keep the rate limit."""
        return max(self.settings.interval_seconds, len(self._known) * self._spacing)

    @property
    def _spacing(self) -> float:
        """Seconds between the starts of two attempts that the rate limit allows."""
        settings = self.settings
        return settings.requests_per_attempt / settings.max_requests_per_second

    @property
    def fresh_seconds(self) -> float:
        """Return how long a verdict speaks for its target.

        Two turns and the last answer; targets that give no answer share a few workers,
        so that many of them have their turns less often than once an interval.
        """
        settings = self.settings
        patience = settings.timeout_seconds + settings.linger_seconds
        slow_round = len(self._slow) * patience / _SLOW_WORKERS
        turn = max(self.interval_seconds * (1 + settings.jitter_ratio), slow_round)
        return 2 * turn + patience

    async def run(self) -> None:
        """Probe for ever; ends by cancellation."""
        workers = Workers(_WORKERS, f"probe-{self._label}")
        self._delay = SchedulingDelay()
        running: set[asyncio.Task[None]] = set()
        wake = _Wake()
        try:
            with self._board.listened_to(wake.from_thread):
                await self._probe_all(workers, running, wake)
        finally:
            for task in running:
                task.cancel()
            workers.close()

    async def _probe_all(
        self, workers: Workers, running: set[asyncio.Task[None]], wake: _Wake
    ) -> None:
        earliest = self._clock()
        while True:
            self._follow_inventory()
            wait = self._due[0][0] - self._clock() if self._due else None
            if wait is not None:
                wait = max(wait, earliest - self._clock())
            if len(running) >= _WORKERS or wait is None:
                await wake.wait(None)
                continue
            if wait > 0:
                await wake.wait(wait)
                continue
            planned, order, target = heapq.heappop(self._due)
            if self._entry.get(target) != order or target in self._in_flight:
                continue
            if target in self._slow and not self._admits_slow():
                self._held_back.append((planned, order, target))
                continue
            task = asyncio.create_task(self._attempt(workers, target, planned))
            running.add(task)
            task.add_done_callback(running.discard)
            # One that ends has its place in the schedule again, perhaps the first.
            task.add_done_callback(wake.from_loop)
            earliest = self._clock() + self._spacing

    def _admits_slow(self) -> bool:
        return len(self._slow & self._in_flight) < _SLOW_WORKERS

    def _release(self) -> None:
        """Return the slow target that has waited longest to the schedule."""
        if self._held_back and self._admits_slow():
            heapq.heappush(self._due, self._held_back.popleft())

    def samples(self, now: float) -> list[AnySample]:
        """Return all samples of verdicts, and of the probing itself."""
        found = self.results.samples(now, self.fresh_seconds)
        if isinstance(self._probe, Telling):
            found += self._probe.samples()
        samples, dropped = within_budget(found, _SERIES_LIMIT)
        # As those of a collector's runs, however often they are asked for.
        if dropped and now - self._drop_counted_at >= _DROP_SECONDS:
            self._drop_counted_at = now
            self.meter.dropped(dropped)
        return [
            *samples,
            Sample(catalogue.PROBE_INTERVAL, self.interval_seconds, (self._label,)),
            # Without a target, its latest success is not old: nothing is due.
            *(
                self.meter.samples()
                if self._known or self.meter.statistics.success is False
                else ()
            ),
        ]

    def serving(self, now: float) -> dict[ModelKey, bool]:
        """Return whether a tensor goes through, by model version."""
        if not self.settings.decides_serving:
            return {}
        return self.results.serving(now, self.fresh_seconds)

    def latest(self, outcome: Outcome, now: float) -> dict[ModelKey, str]:
        """Return the details of the latest verdicts with this outcome, by model version."""
        return self.results.latest(outcome, now, self.fresh_seconds)

    def _follow_inventory(self) -> None:
        inventory = self._board.current
        if inventory is self._inventory:
            return
        self._inventory = inventory
        started = self._clock()
        try:
            targets = set(self._probe.targets(inventory))
        except Exception as error:  # noqa: BLE001 - metered, and logged once
            self.meter.broken(self._clock() - started, error)
            return
        new = targets - self._known
        self._known = targets
        self._slow &= targets
        gone = self._entry.keys() - targets
        if gone:
            for target in gone:
                del self._entry[target]
            self._due = [e for e in self._due if self._entry.get(e[2]) == e[1]]
            heapq.heapify(self._due)
        self.results.keep(targets)
        now = self._clock()
        # New targets begin at once but spread, so that a server that just came up with
        # hundreds of models is not hit by all probes together.
        spread = min(self.interval_seconds, len(new) * 0.05)
        for target in sorted(new, key=lambda t: (t.key, t.protocol)):
            self._schedule(target, now + self._rng.uniform(0, spread))

    def _schedule(self, target: Target, due: float) -> None:
        # Only the latest entry of a target counts: one that went and came back must
        # not be probed twice as often.
        self._order += 1
        self._entry[target] = self._order
        heapq.heappush(self._due, (due, self._order, target))

    async def _attempt(self, workers: Workers, target: Target, planned: float) -> None:
        started = self._clock()
        self._in_flight.add(target)
        try:
            verdict = await self._verdict(workers, target)
        except Exception as error:  # noqa: BLE001 - metered, and logged once
            self.meter.broken(self._clock() - started, error)
        else:
            now = self._clock()
            if target in self._known and verdict is not None:
                self.results.record(target, verdict, now)
                self._note_speed(target, slow=verdict.outcome in _SLOW)
            self.meter.succeeded(now - started)
        finally:
            self._in_flight.discard(target)
            self._release()
        if target in self._known:
            jitter = self._rng.uniform(-1, 1) * self.settings.jitter_ratio
            due = planned + self.interval_seconds * (1 + jitter)
            self._schedule(target, max(due, self._clock()))

    def _note_speed(self, target: Target, *, slow: bool) -> None:
        if slow:
            self._slow.add(target)
        else:
            self._slow.discard(target)

    async def _verdict(self, workers: Workers, target: Target) -> Verdict | None:
        started = self._clock()
        with self._delay.measured() as delayed:
            verdict = await self._awaited(workers, target, delayed)
            waited = self._waited(target, started)
            if verdict is None:
                return None
            verdict = _undelayed(
                verdict, waited, delayed(), self.settings.timeout_seconds
            )
            if isinstance(self._probe, Timed):
                self._probe.note_verdict(target, verdict)
            return verdict

    def _waited(self, target: Target, started: float) -> float:
        """Return for how many seconds the attempt has waited for the model."""
        if isinstance(self._probe, Timed):
            return self._probe.waited_seconds(target)
        return self._clock() - started

    async def _awaited(
        self, workers: Workers, target: Target, delayed: Callable[[], float]
    ) -> Verdict | None:
        started = self._clock()
        run = workers.submit(self._probe.attempt, target)
        settings = self.settings
        patience = settings.timeout_seconds + settings.linger_seconds + _GRACE_SECONDS

        async def ends_within(seconds: float, elapsed: Callable[[], float]) -> bool:
            """Return whether it ends within this process time."""
            left = seconds
            while left > _LEAST_WAIT_SECONDS and not run.done():
                await asyncio.wait({run}, timeout=left)
                left = seconds + delayed() - elapsed()
            return run.done()

        def whole() -> float:
            return self._clock() - started

        limit = settings.timeout_seconds + _OVERDUE_SECONDS

        def in_request() -> float:
            # An attempt that is stuck before its request is overdue as well.
            return max(self._waited(target, started), whole() - patience + limit)

        judges_late = isinstance(self._probe, Timed) and self._probe.judges_late(target)
        decides = settings.decides_serving and not judges_late
        if decides:
            # A late answer is lingered for; that it is late is reported now.
            in_time = await ends_within(limit, in_request)
            if not in_time and target in self._known:
                self._note_speed(target, slow=True)
                self.results.overdue(target, settings.timeout_seconds, self._clock())
        if not await ends_within(patience, whole):
            self._note_speed(target, slow=True)
            # The thread cannot be stopped; it keeps its place and its target.
            model, version = target.key
            self.meter.failed(
                patience,
                f"no verdict on {model} {version} by {target.protocol} within "
                f"{patience:g} s",
            )
            while settings.decides_serving and not run.done() and target in self._known:
                self.results.overdue(target, settings.timeout_seconds, self._clock())
                await asyncio.wait({run}, timeout=settings.interval_seconds)
        return await run


def _undelayed(
    verdict: Verdict, waited: float, delayed: float, timeout_seconds: float
) -> Verdict:
    """Return the verdict of an attempt, corrected for this process's delay."""
    if delayed <= 0:
        return verdict
    in_time = verdict.outcome == "timeout" and waited - delayed <= timeout_seconds
    if in_time or (verdict.outcome == "stalled" and verdict.over_seconds <= delayed):
        return Verdict(
            "late",
            request_id=verdict.request_id,
            detail=f"tritonwatch itself did not run for {delayed:.3f} s of the "
            f"{waited:.3f} s, so this {verdict.outcome} does not show that the model is slow",
        )
    if delayed > waited / 2:
        return replace(verdict, duration_seconds=None)
    return verdict


class _Wake:
    """Ends a pause before its time; made in the loop it serves.

    A signal sent before a pause begins is not lost: the first `wait` after it returns
    at once.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def from_loop(self, _task: object = None) -> None:
        """Wake from within the loop."""
        self._event.set()

    def from_thread(self) -> None:
        """Wake from any thread."""
        # The loop may have ended while the thread was at work.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float | None) -> None:
        """Pause, for so long at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()
