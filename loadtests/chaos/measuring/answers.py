"""The requests of a run as their users saw them: in order, late from when they were due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

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
