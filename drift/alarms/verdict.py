"""Results of an alarm: of one window, and of one evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from drift.alarms.explanation import Culprit

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one window.

    `raised` is true in the window that starts an alarm: `log_evidence` reached
    `log_threshold`. `alarm` stays true until the latest rows, as many as raised it and two
    windows at least, show no change. During an alarm
    `log_evidence` is that of the latest windows alone. `features` (features,) is each
    feature's own log likelihood ratio. `kept` is false where the false-alarm rate is not
    guaranteed, see `Profile.caveats`. `since_windows` counts back to where the change
    most likely began, this window included; 0 without an alarm.
    """

    window: int
    log_evidence: float
    log_threshold: float
    alarm: bool
    raised: bool
    features: Floats
    culprits: tuple[Culprit, ...] = ()
    since_windows: int = 0
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation: the evidence of every feature, the strongest first.

    `named` are the places in the schema of those that e-BH names.
    """

    log_evidence: float
    alarm: bool
    features: tuple[Culprit, ...]
    named: frozenset[int]
