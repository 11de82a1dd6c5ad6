"""The hour of the week, and the seasons of a reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.projection import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

HOURS: Final = 168
MIN_WEEKS: Final = 4
"""Times that each hour of the week has to be in a reference that has seasons."""
DAYS: Final = (
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"
)  # fmt: skip
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
    """Mean location and scale score by hour of the week, each (168, features)."""

    location: Floats
    scale: Floats

    def removed_from(self, summary: Summary, hours: Mapping[int, int]) -> Summary:
        """A summary without its season; `hours` counts the rows of each hour.

        Rows of unknown hours count as spread like the others.
        """
        shares = np.zeros(HOURS)
        known = sum(hours.values())
        for hour, rows in hours.items():
            shares[hour] = rows / max(known, 1)
        return Summary(
            summary.rows,
            summary.finite,
            summary.location - summary.finite * (shares @ self.location),
            summary.scale - summary.finite * (shares @ self.scale),
            summary.bins,
            summary.events,
        )
