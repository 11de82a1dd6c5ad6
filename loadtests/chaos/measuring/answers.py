"""The requests of a run as their users saw them, and the longest time without an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exporter.settings import Settings
from loadtests.errors import PlanError
from loadtests.result import Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from loadtests.result import Floats, RunResult

    Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Answers:
    """The requests of an open loop as their users saw them, in the order they were due."""

    due: Floats
    """(N,) seconds from the load's start."""
    ended: Floats
    """(N,) when the user knew; infinite where it is not known to have ended."""
    right: Mask
    unsent: Mask
    """The sender's own fault: of these it is not known what the server would have said."""
    outcome: NDArray[np.uint8]
    timeout_seconds: float
    until_seconds: float
    """The load was sent until then."""

    @property
    def latency(self) -> Floats:
        """(N,) seconds a user waited; what had no right answer counts as the timeout."""
        waited = np.minimum(self.ended - self.due, self.timeout_seconds)
        return np.where(self.right, waited, self.timeout_seconds)

    def between(self, start: float, end: float) -> Mask:
        """Those that were due from start to before end."""
        return (self.due >= start) & (self.due < end)


def answers_of(result: RunResult) -> Answers:
    """Return what a run's users saw.

    Raises:
        PlanError: it was a closed loop, in which nobody asks while the server hangs.
    """
    if result.about.mode != "open":
        raise PlanError("found a closed loop; recovery is told by an open one only")
    requests = result.requests
    sent = np.isfinite(requests.sent) | (requests.outcome == Outcome.REJECTED)
    known = requests
    if result.about.interrupted:
        last = requests.intended[sent].max(initial=-np.inf)
        known = requests.where(requests.intended <= last)
    unsent = known.outcome == Outcome.UNSENT
    ended = np.where(known.outcome == Outcome.REJECTED, known.intended, known.done)
    return Answers(
        due=known.intended,
        ended=np.where(np.isfinite(ended), ended, np.inf),
        right=known.outcome == Outcome.OK,
        unsent=unsent,
        outcome=known.outcome,
        timeout_seconds=result.about.timeout_seconds,
        until_seconds=float(known.intended.max(initial=0.0)),
    )


class Outage(Settings):
    """The longest time in which users asked and none got a right answer."""

    start_seconds: float
    """When the first of them was due."""
    end_seconds: float
    """When a right answer came; where none came, when the last was given up."""
    ended: bool
    at_most_seconds: float
    """From the right answer before to the one after."""
    blind_seconds: float
    """The longest part of it in which nobody waited: so much it may be shorter."""

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_seconds - self.start_seconds


def outage_of(answers: Answers, chosen: Mask, since_seconds: float) -> Outage | None:
    """The longest outage among the chosen requests, from `since_seconds` on.

    Time in which nobody asked is none: an outage begins when the first request that
    was not answered before was due. None where nobody asked.
    """
    due, ended = answers.due[chosen], answers.ended[chosen]
    if not due.size:
        return None
    given_up = np.minimum(ended, due + answers.timeout_seconds)
    rights = np.sort(ended[answers.right[chosen]])
    rights = rights[rights > since_seconds]
    last = float(given_up.max())
    edges = np.unique(
        np.concatenate(([since_seconds], rights, [max(last, since_seconds)]))
    )
    gaps = np.diff(edges)
    best: Outage | None = None
    for place in np.argsort(-gaps, kind="stable").tolist():
        # Later gaps are shorter, and an outage is no longer than its gap.
        if best is not None and gaps[place] <= best.seconds:
            break
        low, high = float(edges[place]), float(edges[place + 1])
        there = (due < high) & (given_up > low)
        if not there.any():
            continue
        start = max(low, float(due[there].min()))
        found = Outage(
            start_seconds=start,
            end_seconds=high,
            ended=bool(rights.size and high <= rights[-1]),
            at_most_seconds=high - low,
            blind_seconds=_longest_hole(due[there], given_up[there], start, high),
        )
        if best is None or found.seconds > best.seconds:
            best = found
    return best


def _longest_hole(starts: Floats, ends: Floats, low: float, high: float) -> float:
    """The longest time between low and high that none of the spans covers."""
    order = np.argsort(starts, kind="stable")
    starts = np.append(np.clip(starts[order], low, high), high)
    reached = np.maximum.accumulate(np.append(low, np.clip(ends[order], low, high)))
    return float(np.max(starts - reached, initial=0.0))
