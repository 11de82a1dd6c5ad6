"""Little's law: requests in the system are their rate times their time in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.result import Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from loadtests.result import Requests

_SAMPLES: Final = 2000
_TOLERANCE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Check:
    """Both sides of L = r W over a window, counted in two ways."""

    in_system: float
    """L: time average of the number of requests in the system."""
    rate_times_latency: float
    """r W: arrivals a second times the mean time from the intended send."""
    holds: bool
    """True if they are within 5 %, or half a request."""


def check(requests: Requests, start: float, end: float) -> Check | None:
    """Check the law from `start` to `end`; None without an answer in it.

    A gap means that requests were lost or counted twice, or that the system grew over
    the window: then no mean over it stands for anything.
    """
    known = np.isfinite(requests.done) & (requests.outcome != Outcome.REJECTED)
    due, done = requests.intended[known], requests.done[known]
    inside = (due >= start) & (due < end)
    if not inside.any() or end <= start:
        return None
    instants = np.linspace(start, end, _SAMPLES)
    in_system = _under_way(due, done, instants).mean()
    rate = inside.sum() / (end - start)
    product = float(rate * (done[inside] - due[inside]).mean())
    gap = abs(float(in_system) - product)
    return Check(float(in_system), product, bool(gap <= max(_TOLERANCE * product, 0.5)))


def _under_way(
    due: NDArray[np.float64], done: NDArray[np.float64], instants: NDArray[np.float64]
) -> NDArray[np.float64]:
    begun = np.searchsorted(np.sort(due), instants, "right")
    ended = np.searchsorted(np.sort(done), instants, "right")
    return (begun - ended).astype(np.float64)
