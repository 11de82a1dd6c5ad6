"""The method of an experiment, its hypothesis and its limits, as they run."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.activities import (
    Action,
    ActivityFailedError,
    perform,
    tolerates,
)
from loadtests.chaos.measuring.observations import Check, Step
from loadtests.chaos.measuring.polling import Pace

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from loadtests.chaos.activities import Activity, Hypothesis, Limit, Probe
    from loadtests.chaos.measuring.observations import Part, Record

ABORT_EVERY_SECONDS: Final = 0.2


def run_activities(
    activities: Sequence[Activity], part: Part, record: Record, stop: threading.Event
) -> str | None:
    """Run activities until `stop` is set; return the one that failed, None if none did.

    A failed action ends the method; a failed rollback keeps none of the others from
    being tried.
    """
    failed: list[str] = []
    for activity in activities:
        if stop.wait(activity.pauses.before):
            break
        step = _performed(activity, part)
        record.add(step)
        if not step.succeeded and isinstance(activity, Action):
            failed.append(f"the action {activity.name!r} failed: {step.problem}")
        if (failed and part == "method") or stop.wait(activity.pauses.after):
            break
    return failed[0] if failed else None


def _performed(activity: Activity, part: Part) -> Step:
    at = time.perf_counter()
    output: Any = None
    problem: str | None = None
    try:
        output = perform(activity)
    except ActivityFailedError as error:
        problem = str(error)
    return Step(
        at,
        time.perf_counter() - at,
        part,
        activity.model_dump(mode="json", exclude_unset=True),
        succeeded=problem is None,
        output=output,
        problem=problem,
    )


class HypothesisChecks(Pace):
    """Evaluates every probe of the hypothesis at a fixed pace, while its block lasts."""

    def __init__(
        self,
        hypothesis: Hypothesis,
        every_seconds: float,
        record: Record,
    ) -> None:
        super().__init__(every_seconds, self.check)
        self._hypothesis = hypothesis
        self._record = record

    def check(self) -> list[Check]:
        """Evaluate now; every value is recorded with the phase it is of."""
        phase, found = self._record.phase, []
        for probe in self._hypothesis.probes:
            at = time.perf_counter()
            value, met = _evaluated(probe, self._record)
            row = Check(at, phase, probe.name, _number(value), met)
            self._record.add(row)
            found.append(row)
        return found


class LimitWatch(Pace):
    """Ends the experiment when a value has been outside of its limit for long enough.

    One for each limit: a probe that hangs must not delay the others.
    """

    def __init__(
        self,
        limit: Limit,
        record: Record,
        stop: Callable[[str], None],
    ) -> None:
        super().__init__(ABORT_EVERY_SECONDS, self._check)
        self._limit = limit
        self._record = record
        self._stop = stop
        self._since: float | None = None

    def _check(self) -> None:
        limit = self._limit
        value, met = _evaluated(limit, self._record)
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


def _evaluated(probe: Probe, record: Record) -> tuple[Any, bool]:
    """Return the value of a probe, and whether that is within its tolerance.

    One that fails gives nothing, which nothing tolerates.
    """
    try:
        value = perform(probe)
    except ActivityFailedError as error:
        record.remark([f"the probe {probe.name!r} failed: {error}"])
        return None, False
    return value, tolerates(probe.tolerance, value)


def _number(value: Any) -> float | None:
    known = isinstance(value, bool | int | float) and math.isfinite(value)
    return float(value) if known else None
