"""A loss of accuracy, told as soon as the number of wrong answers allows."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Final

from exporter.numerics import run_length

_LEAST_FAILING: Final = 0.002
_MOST_STATES: Final = 1_500


@dataclass(frozen=True, slots=True)
class LossChart:
    """A CUSUM of right and wrong answers (Reynolds and Stoumbos 1999).

    It rises by `up` with each wrong answer, falls by `down` with each right one, not
    below 0, and speaks at `limit`: the log likelihood ratio of the accuracy less the
    loss against the accuracy, in whole steps, so that its run length is exact.
    """

    up: int
    down: int
    limit: int
    wanted_arl: float
    """Samples between false alarms, on average, at least."""

    @classmethod
    @functools.lru_cache(maxsize=256)
    def of(cls, accuracy: float, loss: float, wanted_arl: float) -> LossChart:
        """The chart for a loss of `loss` from `accuracy`."""
        # Where nothing was ever wrong, one answer in a few hundred may yet be.
        failing = max(1.0 - accuracy, _LEAST_FAILING)
        worse = min(failing + loss, 1.0 - 1e-6)
        rise = math.log(worse / failing)
        fall = -math.log((1.0 - worse) / (1.0 - failing))
        # Whole steps as fine as the number of states allows: about log(ARL) / fall.
        up = max(1, round(rise / fall))
        limit = 1
        while limit < _MOST_STATES and _held(failing, up, limit) < wanted_arl:
            limit *= 2
        low, high = limit // 2, min(limit, _MOST_STATES)
        while high - low > 1:
            middle = (low + high) // 2
            if _held(failing, up, middle) < wanted_arl:
                low = middle
            else:
                high = middle
        return cls(up, 1, high, wanted_arl)

    def step(self, level: int, *, right: bool) -> int:
        """The level after one more answer; no higher than the limit."""
        return min(max(0, level + (-self.down if right else self.up)), self.limit)


def _held(failing: float, up: int, limit: int) -> float:
    return run_length.bernoulli_cusum(failing, (up, 1), limit)
