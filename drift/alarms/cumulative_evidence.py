"""Evidence that one window's cumulative shares are not the reference's.

The other kinds of change are sums, so that they collect evidence over windows, but all
are of scores or coarse bins. The Kolmogorov-Smirnov distance over the fine cells also
sees values that moved within one coarse bin: to a default, say, or to a limit.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.alarms.ledger import RECENT
from drift.comparison import Baseline
from drift.statistics import KolmogorovSmirnov

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from drift.reference import Profile
    from drift.window import Counts

    Floats = NDArray[np.float64]

_PER_SIGMA: Final = 0.4
"""Most that a small shift, in deviations of a normal score, moves a cumulative share."""
NOTHING: Final = -700.0
"""Log evidence of what was not compared."""


class CumulativeEvidence:
    """Log e-values of the latest windows, one per feature.

    A start of the alarms gets the evidence of its own first window: added up over the
    starts it grows by at most 1 a window on average, as the alarms' guarantee wants.
    """

    def __init__(self, profile: Profile, margin_sigma: float) -> None:
        self._baseline = Baseline(profile)
        self._margin = _PER_SIGMA * margin_sigma
        self._windows: deque[Floats] = deque(maxlen=RECENT)

    def of(self, counts: Counts) -> Floats:
        """Return the log e-values of one window, (features,).

        From the distance D and the spread h (`drift.comparison.Comparison`) the p-value
        is at most 2 exp(-2 D^2 / h), and p^(-1/2) / 2 is an e-value.

        References: Massart (1990) and Wei, Dudley (2012) for the bound; Vovk, Wang
        (2021), "E-values: calibration, combination and applications".
        """
        comparison = self._baseline.compare(counts)
        apart = KolmogorovSmirnov().distance(comparison)
        spread = comparison.padded(comparison.ordered_spread)
        beyond = np.maximum(apart - self._margin, 0.0)
        log_p = np.minimum(np.log(2.0) - 2.0 * beyond**2 / spread, 0.0)
        return np.where(np.isfinite(log_p), -0.5 * log_p - np.log(2.0), NOTHING)

    def push(self, counts: Counts) -> None:
        """Add a closed window."""
        self._windows.appendleft(self.of(counts))

    def of_starts(self, ages: Sequence[int]) -> Floats:
        """Return the evidence (starts, features) of starts so many windows ago."""
        features = len(self._baseline.profile.names)
        unknown = np.full(features, NOTHING)
        known = len(self._windows)
        return np.stack(
            [self._windows[age - 1] if age <= known else unknown for age in ages]
        )

    def state(self) -> list[Floats]:
        """Return the log e-values, the latest window's first."""
        return list(self._windows)

    def restore(self, saved: Sequence[object]) -> None:
        """Restore what `state` returned; of an older version's state it is empty.

        Raises:
            ValueError: an array does not have the number of features.
        """
        features = len(self._baseline.profile.names)
        arrays = [np.array(each, np.float64).reshape(features) for each in saved]
        self._windows = deque(arrays, maxlen=RECENT)
