"""The base of every distance: settings with a `kind`, the distance, and its null."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from drift.comparison import Comparison, Null


class Statistic(BaseModel, ABC):
    """A distance between a window and the reference: an effect size, not an alarm.

    `threshold` is for those who want the classic rule of thumb beside the distance; it
    takes no account of the window's size and raises nothing by itself. A feature with
    nothing to compare has the distance NaN, and so has a categorical one where the
    distance needs an order (`ordered`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ordered: ClassVar[bool]
    classic: ClassVar[float | None]

    threshold: float | None = Field(default=None, gt=0)

    @abstractmethod
    def distance(self, comparison: Comparison) -> NDArray[np.float64]:
        """The distance of every feature, (features,); 0 of the reference to itself."""

    @abstractmethod
    def null(self, comparison: Comparison) -> Null:
        """Mean and 99.9 % bound of the distance if nothing changed."""
