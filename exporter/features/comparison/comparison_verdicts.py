"""Verdicts from an interval and a margin: better, worse, equivalent, undecided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from exporter.features.comparison.comparison_settings import Metric
    from exporter.features.comparison.confidence import Interval

Verdict = Literal["better", "worse", "equivalent", "undecided"]
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
MORE_IS_BETTER: Final[frozenset[Metric]] = frozenset(
    {"agreement", "accuracy", "success"}
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The current state of one metric: the challenger's effect and its margin."""

    metric: Metric
    interval: Interval
    margin: float

    @property
    def loss(self) -> tuple[float, float]:
        """(low, high) of how much worse the challenger is."""
        low, high = self.interval.low, self.interval.high
        return (-high, -low) if self.metric in MORE_IS_BETTER else (low, high)

    @property
    def verdict(self) -> Verdict:
        """`worse` and `better` are beyond the margin, `equivalent` is within it."""
        low, high = self.loss
        if low > self.margin:
            return "worse"
        if high < -self.margin:
            return "better"
        if -self.margin <= low and high <= self.margin:
            return "equivalent"
        return "undecided"

    @property
    def passes(self) -> bool:
        """Return whether the challenger is surely not worse by more than the margin."""
        return self.loss[1] <= self.margin
