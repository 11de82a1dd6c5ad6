"""The base of every distance: its kind, the distance, and its null."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from drift.comparison import Comparison, Null


class Statistic(ABC):
    """A distance between a window and the reference: an effect size, not an alarm.

    A feature with nothing to compare has the distance NaN, and so has a categorical one
    where the distance needs an order (`ordered`).
    """

    kind: ClassVar[str]
    """Name in configurations and metrics."""
    title: ClassVar[str]
    """Name in reports."""
    ordered: ClassVar[bool]
    classic: ClassVar[float | None]
    """The usual rule of thumb, which ignores the number of rows; None if there is none."""

    @abstractmethod
    def distance(self, comparison: Comparison) -> NDArray[np.float64]:
        """The distance of every feature, (features,); 0 of the reference to itself."""

    @abstractmethod
    def null(self, comparison: Comparison) -> Null:
        """Mean and 99.9 % bound of the distance if nothing changed."""
