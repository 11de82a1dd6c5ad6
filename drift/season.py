"""The hour of the week, and the seasons of a reference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from drift.projection import Summary

    Floats = NDArray[np.float64]

HOURS: Final = 168
MIN_WEEKS: Final = 4
"""Times that each hour of the week has to be in a reference that has seasons."""
DAYS: Final = (
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"
)  # fmt: skip
_LEAST_LEFT: Final = 0.1
"""Of the variance of a block; less is left where an hour has one block only."""
_HOUR_SECONDS: Final = 3600.0
# 1970 began on a Thursday; the week begins on Monday.
_FIRST: Final = 72


def hours_of_week(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Hour of the week, 0 for Monday 0:00 UTC, of times in seconds since 1970.

    Example:
        >>> import numpy as np
        >>> hours_of_week(np.array([0.0, 345600.0, -1.0])).tolist()
        [72, 0, 71]
    """
    whole = np.floor(seconds / _HOUR_SECONDS).astype(np.int64)
    return np.asarray((whole + _FIRST) % HOURS)


def hour_of_week(seconds: float) -> int:
    """Hour of the week of one time, see `hours_of_week`."""
    return int((seconds // _HOUR_SECONDS + _FIRST) % HOURS)


@dataclass(frozen=True, slots=True)
class Season:
    """Mean location and scale score by hour of the week, each (168, features).

    `rows` (168, features) are the finite values behind each mean.
    """

    location: Floats
    scale: Floats
    rows: Floats

    def part(self, features: slice) -> Season:
        """Return the season of some features."""
        return Season(
            self.location[:, features], self.scale[:, features], self.rows[:, features]
        )

    def removed_from(self, summary: Summary, hours: Mapping[int, int]) -> Summary:
        """A summary without its season; `hours` counts the rows of each hour.

        Rows of unknown hours count as spread like the others.
        """
        shares = np.zeros(HOURS)
        known = sum(hours.values())
        for hour, rows in hours.items():
            shares[hour] = rows / max(known, 1)
        return replace(
            summary,
            location=summary.location - summary.finite * (shares @ self.location),
            scale=summary.scale - summary.finite * (shares @ self.scale),
        )

    def worth(
        self, finite: Floats, hours: Mapping[int, int], earlier: Mapping[int, int]
    ) -> Floats:
        """Share of its `finite` values (features,) that a window is worth, (features,).

        A mean of R rows has an error, which n rows have in common: their sum varies
        1 + n / R times as much as that of independent rows, as if they were so many times
        fewer. `earlier` are the rows of windows before this one, in the same hours: they
        had the same error.
        """
        return 1.0 / (1.0 + self._added_variance(finite, hours, earlier))

    def removed_from_own(self, block: Summary, hours: Mapping[int, int]) -> Summary:
        """A block of the reference without its season.

        The block is part of the means, so that what is left of it varies less than the
        rows of a window; its scores are raised by as much.
        """
        plain = self.removed_from(block, hours)
        left = 1.0 - self._added_variance(block.finite, hours, {})
        deviation = np.sqrt(np.maximum(left, _LEAST_LEFT))
        return replace(
            plain, location=plain.location / deviation, scale=plain.scale / deviation
        )

    def _added_variance(
        self, finite: Floats, hours: Mapping[int, int], earlier: Mapping[int, int]
    ) -> Floats:
        """Variance of the subtracted means over that of the data, (features,).

        The square of a sum grows by n (n + 2 earlier). Hours without a mean add nothing.
        """
        known = max(sum(hours.values()), 1)
        shares = np.zeros((HOURS, 1))
        for hour, rows in hours.items():
            shares[hour] = rows * (rows + 2 * earlier.get(hour, 0)) / known**2
        added = np.divide(
            shares, self.rows, out=np.zeros_like(self.rows), where=self.rows > 0
        )
        return np.asarray(finite * added.sum(axis=0))
