"""The length of an outage: the time without a right answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from exporter.settings import Settings

if TYPE_CHECKING:
    from loadtests.chaos.measuring.answers import Answers, Mask
    from loadtests.result import Floats


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
        """How long it was."""
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
