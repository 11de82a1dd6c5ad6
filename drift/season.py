"""The hour of the week, by which a reference knows its seasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

HOURS: Final = 168
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
