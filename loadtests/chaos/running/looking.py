"""Looks at the hypothesis all the while, and at what would end the experiment."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from exporter.background import Background
from loadtests.chaos.measuring.evidence import Check
from loadtests.chaos.running.activities import ActivityFailedError, judge, perform

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.chaos.measuring.record import Record
    from loadtests.chaos.running.foreign import Foreign
    from loadtests.chaos.running.hypothesis import Hypothesis, Limit, Probe

ABORT_EVERY_SECONDS: Final = 0.2
_END_SECONDS: Final = 5.0


class Pace(Background):
    """Does something at a fixed pace while its block lasts, first one pace from now."""

    def __init__(self, every_seconds: float, act: Callable[[], object]) -> None:
        super().__init__(end_seconds=_END_SECONDS)
        self._every = every_seconds
        self._act = act

    def _work(self) -> None:
        due = time.monotonic() + self._every
        while not self._over.wait(max(due - time.monotonic(), 0.0)):
            self._act()
            # One that took longer than the pace is not made up for.
            due = max(due + self._every, time.monotonic())


class Looks(Pace):
    """Asks every probe of the hypothesis at a fixed pace, while its block lasts."""

    def __init__(
        self,
        hypothesis: Hypothesis,
        every_seconds: float,
        record: Record,
        foreign: Foreign | None,
    ) -> None:
        super().__init__(every_seconds, self.look)
        self._hypothesis = hypothesis
        self._record = record
        self._foreign = foreign

    def look(self) -> list[Check]:
        """Ask now; every answer is written down with the phase in which it was asked."""
        phase, found = self._record.phase, []
        for probe in self._hypothesis.probes:
            at = time.perf_counter()
            value, met = asked(probe, self._foreign, self._record)
            check = Check(at, phase, probe.name, _number(value), met)
            self._record.add(self._record.checks, check)
            found.append(check)
        return found


class LimitWatch(Pace):
    """Ends the experiment when a value has been outside of its limit for long enough.

    One for each limit: a probe that hangs must not hold up the others.
    """

    def __init__(
        self,
        limit: Limit,
        record: Record,
        foreign: Foreign | None,
        stop: Callable[[str], None],
    ) -> None:
        super().__init__(ABORT_EVERY_SECONDS, self._look)
        self._limit = limit
        self._record = record
        self._foreign = foreign
        self._stop = stop
        self._since: float | None = None

    def _look(self) -> None:
        limit = self._limit
        value, met = asked(limit, self._foreign, self._record)
        now = time.perf_counter()
        # Before the method there is nothing to end, and the first window is not full.
        if met or self._record.phase == "before":
            self._since = None
            return
        if self._since is None:
            self._since = now
        if now - self._since >= limit.for_seconds:
            self._stop(
                f"{limit.name}: found {value}, outside of its limit for "
                f"{now - self._since:.1f} s"
            )


def asked(probe: Probe, foreign: Foreign | None, record: Record) -> tuple[Any, bool]:
    """Return what a probe gives, and whether that is within its tolerance.

    One that fails gives nothing, which nothing tolerates.
    """
    try:
        value = perform(probe, foreign)
    except ActivityFailedError as error:
        record.remark(f"the probe {probe.name!r} failed: {error}")
        return None, False
    return value, judge(probe, value, foreign)


def _number(value: Any) -> float | None:
    if isinstance(value, dict):  # of a program or a URL
        value = value.get("status")
    return float(value) if isinstance(value, bool | int | float) else None
