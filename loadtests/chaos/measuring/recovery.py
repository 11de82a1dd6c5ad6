"""Effect and recovery of a fault, from the times of users' requests.

Every request is judged by what its user saw: late counts from when it was due, and one
without a correct answer is as late as its timeout. A window of time is good where all its
requests got correct answers and a high quantile of their latency kept the limit, bad
where that was not so, and unknown where nothing was asked: never good.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from pydantic import Field

from exporter.histograms.quantiles import quantile_rank
from exporter.settings import Settings
from loadtests.chaos.measuring.served import Outage, outage_of
from loadtests.result import quantile_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from loadtests.chaos.measuring.served import Answers, Span
    from loadtests.result import Floats

    Mask = NDArray[np.bool_]

_LEAST_BASELINE: Final = 20
"""Minimum number of correct answers before the fault for a limit of latency."""
_ROUNDING_SECONDS: Final = 1e-6
State = Literal["unaffected", "recovered", "not_recovered", "unknown"]
GOOD: Final = 1
UNKNOWN: Final = 0
BAD: Final = -1
_LEAST_SECONDS: Final = 1e-6
"""Pieces narrower than that are rounding errors of times that are the same."""


class RecoverySettings(Settings):
    """The conditions under which users count as served again."""

    window_seconds: float = Field(default=1.0, gt=0, le=60)
    """Length of the windows that are good or bad."""
    hold_seconds: float = Field(default=5.0, gt=0, le=3600)
    """Time for which all windows have to be good."""
    quantile: float = Field(default=0.95, gt=0, lt=1)
    """Quantile of a window's latencies that has to keep the limit."""
    latency_factor: float = Field(default=2.0, ge=1, le=1000)
    """The limit, relative to the 99th percentile before the fault."""
    latency_limit_seconds: float | None = Field(default=None, gt=0, le=3600)
    """The limit itself, in place of the factor."""


class Recovery(Settings):
    """The effect of one fault and its end. None is unknown, or did not happen."""

    state: State
    reason: str
    """The reason, in a sentence."""
    limit_seconds: float | None = None
    """Later than that is late."""
    first_bad_seconds: float | None = None
    """Time at which the first bad request of the first bad window was due."""
    recovered_seconds: float | None = None
    """SLO-recovered: due time of the first good request of good windows that lasted
    `hold_seconds` and, but for late moments shorter than a window, to the end of the
    observation."""
    relapses: int = 0
    """Times that requests failed, or were late for longer than a window, after the fault
    had ended and good windows had lasted for `hold_seconds`.
    """
    outage: Outage | None = None
    bad_requests: int = 0


def latency_limit(
    answers: Answers, settings: RecoverySettings, fault_seconds: float
) -> float | None:
    """Return the latency limit in seconds; None with too few requests before the fault."""
    if settings.latency_limit_seconds is not None:
        return settings.latency_limit_seconds
    before = answers.latency[answers.right & (answers.ended < fault_seconds)]
    if before.size < _LEAST_BASELINE:
        return None
    return settings.latency_factor * quantile_of(before, 0.99)


def recovery_of(
    answers: Answers,
    span: Span,
    settings: RecoverySettings,
    limit_seconds: float | None,
) -> Recovery:
    """Return the effect of a span's fault on users."""
    until = answers.until_seconds
    if span.next_seconds is not None:
        # Later requests may have been affected by the next fault.
        until = min(until, span.next_seconds - answers.timeout_seconds)
    after = np.where(np.isinf(answers.ended), answers.due, answers.ended)
    chosen = (answers.due <= until) & (after >= span.inject_seconds)
    late = answers.right & (
        answers.latency > (np.inf if limit_seconds is None else limit_seconds)
    )
    bad = chosen & (late | (~answers.right & ~answers.unsent))
    measured = Recovery(
        state="unknown",
        reason="",
        limit_seconds=limit_seconds,
        outage=outage_of(answers, chosen & ~answers.unsent, span.inject_seconds),
        bad_requests=int(bad.sum()),
    )
    judged = Judged(
        due=answers.due[chosen],
        failed=(bad & ~late)[chosen],
        late=late[chosen],
        unknown=answers.unsent[chosen],
    )
    start = min(span.inject_seconds, float(judged.due.min(initial=np.inf)))
    found = stretches(
        judged,
        start,
        until,
        window_seconds=settings.window_seconds,
        quantile=settings.quantile,
    )
    course = _Course(settings, span, judged, until, found)
    return course.concluded(measured)


@dataclass(frozen=True, slots=True)
class _Course:
    """The grades of all windows since a fault, and the conclusions from them."""

    settings: RecoverySettings
    span: Span
    judged: Judged
    until: float
    found: list[Stretch]

    @property
    def effect(self) -> int | None:
        """Place of the first bad windows that may be the fault's; None where none are."""
        places = (
            place
            for place, stretch in enumerate(self.found)
            if stretch.grade == BAD and not self._is_later(stretch)
        )
        return next(places, None)

    def _is_later(self, stretch: Stretch) -> bool:
        """Return True if it is a short late spell, long after the fault was undone."""
        since = stretch.start_seconds - self.settings.hold_seconds
        return self._is_short(stretch) and self._is_gone_at(since)

    def _is_gone_at(self, seconds: float) -> bool:
        """Return True if the fault was verified as undone by then."""
        reverted = self.span.reverted_seconds
        return reverted is not None and seconds >= reverted

    def _is_short(self, stretch: Stretch) -> bool:
        """Return True if requests were only late, and for at most a window."""
        # Windows are bad from one before the first late request to the last.
        short = stretch.seconds <= 2 * self.settings.window_seconds
        return short and not stretch.failed

    def concluded(self, measured: Recovery) -> Recovery:
        """Return it with its state and time of recovery."""
        if measured.limit_seconds is None:
            found: dict[str, object] = {
                "reason": f"fewer than {_LEAST_BASELINE} correct answers before the "
                "fault: no latency to compare with"
            }
        elif not self.found:
            found = self._ended_early(max(self._seen, 0.0))
        elif self.effect is None:
            found = self._never_bad()
        else:
            found = self._followed(self.found[self.effect :])
        if self.effect is not None:
            first = self.found[self.effect]
            found["first_bad_seconds"] = self._due(first, good=False)
        return measured.model_copy(update=found)

    @property
    def _seen(self) -> float:
        return self.until - self.span.inject_seconds

    def _ended_early(self, seconds: float) -> dict[str, object]:
        return {"reason": f"the load ended {seconds:.2f} s after the fault"}

    def _followed(self, after: list[Stretch]) -> dict[str, object]:
        """Relapses, and the stretch that held and had none after it."""
        held: Stretch | None = None
        relapses = 0
        for stretch in after:
            if stretch.grade == GOOD and held is None and self._holds(stretch):
                held = stretch
            elif (
                stretch.grade == BAD
                and held is not None
                and not self._is_short(stretch)
            ):
                held_by = stretch.start_seconds - self.settings.hold_seconds
                relapses += self._is_gone_at(max(self._due(held), held_by))
                held = None
        found: dict[str, object] = {"relapses": relapses}
        if held is None:
            return found | self._not_held(after[-1])
        due = self._due(held)
        return found | {
            "state": "recovered",
            "reason": f"good for the last {self.until - due:.2f} s",
            "recovered_seconds": due,
        }

    def _never_bad(self) -> dict[str, object]:
        if any(stretch.grade == UNKNOWN for stretch in self.found):
            return {"reason": "too few requests to decide"}
        if self._seen < self.settings.hold_seconds - _ROUNDING_SECONDS:
            return self._ended_early(self._seen)
        return {
            "state": "unaffected",
            "reason": "no window was bad while it could be the fault's",
        }

    def _not_held(self, last: Stretch) -> dict[str, object]:
        """Return the values for good windows at the end that did not last long enough."""
        wanted = self.settings.hold_seconds
        if last.grade == UNKNOWN:
            return {"reason": "too few requests at the end to decide"}
        if last.grade == GOOD:
            seen = last.seconds + self.settings.window_seconds
            reason = f"good for the last {seen:.2f} s only; {wanted:g} s are wanted"
            return {"reason": reason}
        since, reverted = self.span.inject_seconds, self.span.reverted_seconds
        # A fault that is undone after the load was active for all of it.
        if reverted is not None and reverted < self.until:
            since = reverted
        seen = self.until - since
        if seen < wanted:
            reason = (
                f"bad to the end, {seen:.2f} s after the fault; {wanted:g} s are wanted"
            )
            return {"reason": reason}
        reason = f"still bad {seen:.2f} s after the fault"
        return {"state": "not_recovered", "reason": reason}

    def _holds(self, stretch: Stretch) -> bool:
        needed = self.settings.hold_seconds - self.settings.window_seconds
        return stretch.grade == GOOD and stretch.seconds >= needed - _ROUNDING_SECONDS

    def _due(self, stretch: Stretch, *, good: bool = True) -> float:
        """Return when the first good request of a stretch was due, or the first bad one.

        The quantile lets some of the first be late still, and then they are.
        """
        bad = self.judged.late | self.judged.failed
        wanted = ~(bad | self.judged.unknown) if good else bad
        first = stretch.first_due + int(wanted[stretch.first_due :].argmax())
        return float(self.judged.due[first])


@dataclass(frozen=True, slots=True)
class Stretch:
    """Windows of one grade, one after the other: they begin from start to end."""

    grade: int
    start_seconds: float
    end_seconds: float
    first_due: int
    """Index of the first request of the first window; the next one where it is empty."""
    failed: bool
    """True if a request of one of the windows failed; bad ones may just be late."""

    @property
    def seconds(self) -> float:
        """Seconds in which windows of this grade began."""
        return self.end_seconds - self.start_seconds


@dataclass(frozen=True, slots=True)
class Judged:
    """Requests in the order they were due, and their grades."""

    due: Floats
    failed: Mask
    late: Mask
    """Answered correctly, beyond the limit."""
    unknown: Mask
    """Requests that were never sent."""


def stretches(
    judged: Judged,
    start_seconds: float,
    end_seconds: float,
    *,
    window_seconds: float,
    quantile: float,
) -> list[Stretch]:
    """Return all windows from start to end, as stretches of one grade in order.

    A window is bad where a request of it failed or too many are late for the quantile;
    unknown where it is empty or one was never sent; good otherwise.
    """
    last = end_seconds - window_seconds
    if last <= start_seconds:
        return []
    due = judged.due
    edges = np.concatenate(([start_seconds, last], due, due - window_seconds))
    edges = np.unique(edges[(edges >= start_seconds) & (edges <= last)])
    wide = np.diff(edges) > _LEAST_SECONDS
    lows, highs = edges[:-1][wide], edges[1:][wide]
    middles = (lows + highs) / 2
    first = np.searchsorted(due, middles)
    end = np.searchsorted(due, middles + window_seconds)
    failed = _within(judged.failed, first, end) > 0
    grades = _grades(judged, failed, first, end, quantile)
    return list(_joined(grades, failed, lows, highs, first))


def _grades(
    judged: Judged,
    failed: Mask,
    first: NDArray[np.intp],
    end: NDArray[np.intp],
    quantile: float,
) -> NDArray[np.int8]:
    count = end - first
    most = int(count.max(initial=0))
    spare = np.array([0, *(n - quantile_rank(n, quantile) for n in range(1, most + 1))])
    late, unknown = (
        _within(mask, first, end) for mask in (judged.late, judged.unknown)
    )
    grades = np.full(count.shape, GOOD, np.int8)
    grades[(count == 0) | (unknown > 0)] = UNKNOWN
    grades[failed | (late > spare[count])] = BAD
    return grades


def _within(
    mask: Mask, first: NDArray[np.intp], end: NDArray[np.intp]
) -> NDArray[np.int64]:
    running = np.concatenate(([0], np.cumsum(mask, dtype=np.int64)))
    return running[end] - running[first]


def _joined(
    grades: NDArray[np.int8],
    failed: Mask,
    lows: Floats,
    highs: Floats,
    first: NDArray[np.intp],
) -> Iterator[Stretch]:
    changes = np.flatnonzero(np.diff(grades)) + 1
    edges = [0, *changes.tolist(), grades.size]
    for a, b in pairwise(edges):
        if a < b:
            yield Stretch(
                grade=int(grades[a]),
                start_seconds=float(lows[a]),
                end_seconds=float(highs[b - 1]),
                first_due=int(first[a]),
                failed=bool(failed[a:b].any()),
            )
