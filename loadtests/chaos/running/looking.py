"""Looks at the hypothesis all the while, and at what would end the experiment."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from loadtests.chaos.measuring.evidence import Check
from loadtests.chaos.running.activities import ActivityFailedError, judge, perform

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from loadtests.chaos.measuring.record import Record
    from loadtests.chaos.running.foreign import Foreign
    from loadtests.chaos.running.hypothesis import Hypothesis, Limit, Probe

ABORT_EVERY_SECONDS: Final = 0.2
_END_SECONDS: Final = 5.0


class Looks:
    """Asks every probe of the hypothesis at a fixed pace, while its block lasts."""

    def __init__(
        self,
        hypothesis: Hypothesis,
        every_seconds: float,
        record: Record,
        foreign: Foreign | None,
    ) -> None:
        self._hypothesis = hypothesis
        self._record = record
        self._foreign = foreign
        self._pace = Pace(every_seconds, self.look)

    def __enter__(self) -> Self:
        self._pace.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pace.end()

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


class Limits:
    """Ends the experiment when a value has been outside of its limit for long enough."""

    def __init__(
        self,
        limits: tuple[Limit, ...],
        record: Record,
        foreign: Foreign | None,
        stop: Callable[[str], None],
    ) -> None:
        self._limits = limits
        self._record = record
        self._foreign = foreign
        self._stop = stop
        self._since: dict[int, float] = {}
        self._paces = [
            # Each at a pace of its own: a probe that hangs must not hold up the others.
            Pace(ABORT_EVERY_SECONDS, partial(self._look, place))
            for place in range(len(limits))
        ]

    def __enter__(self) -> Self:
        for pace in self._paces:
            pace.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for pace in self._paces:
            pace.end()

    def _look(self, place: int) -> None:
        limit = self._limits[place]
        value, met = asked(limit, self._foreign, self._record)
        now = time.perf_counter()
        # Before the method there is nothing to end, and the first window is not full.
        if met or self._record.phase == "before":
            self._since.pop(place, None)
            return
        since = self._since.setdefault(place, now)
        if now - since >= limit.for_seconds:
            self._stop(
                f"{limit.name}: found {value}, outside of its limit for "
                f"{now - since:.1f} s"
            )


class Pace:
    """A thread that does something at a fixed pace until it is told to end."""

    def __init__(self, every_seconds: float, act: Callable[[], object]) -> None:
        self._every = every_seconds
        self._act = act
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin, with the first time one pace from now."""
        self._thread.start()

    def end(self) -> None:
        """No more."""
        self._over.set()
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        due = time.monotonic() + self._every
        while not self._over.wait(max(due - time.monotonic(), 0.0)):
            self._act()
            # One that took longer than the pace is not made up for.
            due = max(due + self._every, time.monotonic())


def asked(probe: Probe, foreign: Foreign | None, record: Record) -> tuple[Any, bool]:
    """What a probe gives, and whether that is within its tolerance.

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
