"""Service before, during and after a fault, and the error budget it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from exporter.histograms.quantiles import quantile_rank
from exporter.settings import Settings
from loadtests.result import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.chaos.measuring.answers import Answers, Mask
    from loadtests.chaos.measuring.recovery import RecoverySettings, Span


class Served(Settings):
    """The requests that were due in one part of a run. None is unknown: there were none."""

    start_seconds: float
    end_seconds: float
    requests: int
    """Those that were sent, or rejected as too many were in flight."""
    right: int
    lost: int
    """Errors, timeouts, rejected."""
    wrong: int
    """Answered with success, and not what the model has to answer."""
    unsent: int
    """Never sent, which is the sender's fault; left out of all others."""
    availability: float | None
    """Share of right answers."""
    p50: float | None
    """Seconds from when they were due; what has no right answer counts as the timeout."""
    p95: float | None
    p99: float | None


class Budget(Settings):
    """The error budget spent, from a fault's injection to the end of the load."""

    objective_ratio: float
    window_seconds: float
    bad_ratio: float | None
    """Share of bad requests: no right answer, or beyond the limit of latency."""
    burn_rate: float | None
    """That over the share allowed: 1 uses the budget up at the end of its window."""
    burnt_ratio: float | None = Field(default=None)
    """Share of the whole window's budget, at this rate of requests."""


def served(answers: Answers, mine: Mask, start: float, end: float) -> Served:
    """Those chosen, which are of the time from start to end."""
    known = mine & ~answers.unsent
    count, right = int(known.sum()), int((known & answers.right).sum())
    wrong = int((known & (answers.outcome == Outcome.WRONG)).sum())
    latency = np.sort(answers.latency[known])
    p50, p95, p99 = (
        float(latency[quantile_rank(count, q) - 1]) if count else None
        for q in (0.5, 0.95, 0.99)
    )
    return Served(
        start_seconds=start,
        end_seconds=end,
        requests=count,
        right=right,
        lost=count - right - wrong,
        wrong=wrong,
        unsent=int((mine & answers.unsent).sum()),
        availability=right / count if count else None,
        p50=p50,
        p95=p95,
        p99=p99,
    )


def phases(
    answers: Answers, faults: Sequence[Span]
) -> tuple[Served, Served | None, Served | None]:
    """Before, during and after the faults; without a fault all is before.

    During lasts from the first fault to when the last one was undone, or to the end
    where that was not seen. What was under way when the first one came is of during.
    """
    end = answers.until_seconds
    if not faults:
        return served(answers, np.ones_like(answers.right), 0.0, end), None, None
    start = min(faults[0].inject_seconds, end)
    reverted = faults[-1].reverted_seconds
    over = end if reverted is None else max(min(reverted, end), start)
    ended = np.where(np.isinf(answers.ended), answers.due, answers.ended)
    before = (answers.due < start) & (ended < start)
    after = answers.due >= over if over < end else np.zeros_like(before)
    return (
        served(answers, before, 0.0, start),
        served(answers, ~before & ~after, start, over),
        served(answers, after, over, end) if over < end else None,
    )


def budget(
    answers: Answers,
    bad_requests: int,
    settings: RecoverySettings,
    since_seconds: float,
) -> Budget:
    """Return the error budget spent since the fault."""
    known = ~answers.unsent
    asked = int((known & (answers.due >= since_seconds)).sum())
    allowed = 1.0 - settings.objective_ratio
    # A request that was due before the fault and was hit by it is bad, too.
    ratio = min(bad_requests / asked, 1.0) if asked else None
    whole = 0.0
    if answers.until_seconds > 0:
        rate = float(known.sum()) / answers.until_seconds
        whole = allowed * rate * settings.budget_window_seconds
    return Budget(
        objective_ratio=settings.objective_ratio,
        window_seconds=settings.budget_window_seconds,
        bad_ratio=ratio,
        burn_rate=None if ratio is None else ratio / allowed,
        burnt_ratio=bad_requests / whole if whole else None,
    )
