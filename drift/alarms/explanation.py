"""Explanation of an alarm: which features changed, how, by how much, and in which bins."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift.joint_counting import changed_pairs
from drift.projection import EVENTS, at_risk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from drift.alarms.ledger import Sums
    from drift.joint_counting import JointSums, Pair
    from drift.reference import Profile

    Floats = NDArray[np.float64]

MAX_BINS: Final = 3
CHANNELS: Final = ("location", "scale", "shape", *EVENTS, "range")
"""The kinds of change that alarms detect."""


@dataclass(frozen=True, slots=True)
class BinChange:
    """One coarse bin whose share changed: its range, its share before and since."""

    label: str
    before: float
    since: float


@dataclass(frozen=True, slots=True)
class Culprit:
    """One feature that changed.

    `channel` is where its evidence is strongest. `shift_sigma` is the change of the
    mean normal score, `scale_ratio` about how much wider the values spread, `rates` the
    shares of missing, infinite and outside values (before, since); `bins` the coarse
    bins that changed most. All hold since the change most likely began. `pairs` are,
    for the joint feature, the columns whose correlation changed most.
    """

    feature: str
    channel: str
    log_evidence: float
    shift_sigma: float
    scale_ratio: float
    rates: tuple[tuple[str, float, float], ...]
    bins: tuple[BinChange, ...]
    pairs: tuple[Pair, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists; without `pairs`, which older programs refuse."""
        return {name: v for name, v in asdict(self).items() if name != "pairs"}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Culprit:
        """Return the explanation that `to_json` gave, also after encoding as JSON."""
        return cls(
            **{
                **data,
                "rates": tuple(
                    (str(n), float(b), float(s)) for n, b, s in data["rates"]
                ),
                "bins": tuple(BinChange(**change) for change in data["bins"]),
            }
        )


def e_benjamini_hochberg(
    log_evidence: NDArray[np.float64], false_share: float
) -> list[int]:
    """Indices of the features to name, strongest first.

    With e-values e_(1) >= e_(2) >= ..., name the first k, the largest k for which
    k e_(k) / m >= 1 / `false_share`. The expected share of wrongly named features is at
    most `false_share` for any dependence between features.

    Reference: Wang, Ramdas (2022), "False discovery rate control with e-values".

    Example:
        >>> import numpy as np
        >>> e_benjamini_hochberg(np.log([1.0, 900.0, 2.0, 0.1]), 0.1)
        [1]
    """
    order = np.argsort(-log_evidence, kind="stable")
    rank = np.arange(1, log_evidence.shape[0] + 1)
    enough = np.log(rank) + log_evidence[order] >= np.log(
        max(log_evidence.shape[0], 1) / false_share
    )
    count = int(rank[enough].max()) if enough.any() else 0
    return [int(index) for index in order[:count]]


def explain(
    profile: Profile,
    before: Sums,
    since: Sums,
    log_evidence: Floats,
    features: Sequence[int],
    joint: Iterable[JointSums],
) -> tuple[Culprit, ...]:
    """Describe `features`; `log_evidence` is (features, channels) at the change.

    `joint` are the sums over batches since the change.
    """
    found = [
        _culprit(profile, before, since, log_evidence[feature], feature)
        for feature in features
    ]
    return tuple(
        replace(culprit, pairs=changed_pairs(profile, joint))
        if profile.is_joint(feature)
        else culprit
        for feature, culprit in zip(features, found, strict=True)
    )


def _culprit(
    profile: Profile, before: Sums, since: Sums, log_evidence: Floats, feature: int
) -> Culprit:
    def change(name: str) -> float:
        old, new = (
            float(getattr(side, name)[feature]) / max(float(side.finite[feature]), 1.0)
            for side in (before, since)
        )
        return new - old

    shift = change("location")
    # The scale score is (z^2 - 1) / sd(z^2), with sd(z^2) = sqrt 2 for normal scores;
    # a shift adds shift^2 to z^2.
    variance = 1.0 + 2.0**0.5 * change("scale") - shift**2
    old, new = (
        side.events[feature]
        / np.maximum(at_risk(side.trials[feature], side.events[feature]), 1.0)
        for side in (before, since)
    )
    rates = tuple(
        (event, float(old[index]), float(new[index]))
        for index, event in enumerate(EVENTS)
        if event != "outside" or not profile.is_open(feature)
    )
    return Culprit(
        profile.names[feature],
        CHANNELS[int(np.argmax(log_evidence))],
        float(log_evidence.max()),
        shift,
        float(np.sqrt(max(variance, 0.0))),
        rates,
        _bins(profile, before.bins[feature], since.bins[feature], feature),
    )


def _bins(
    profile: Profile, before: Floats, since: Floats, feature: int
) -> tuple[BinChange, ...]:
    old = before / max(float(before.sum()), 1.0)
    new = since / max(float(since.sum()), 1.0)
    most = np.argsort(-np.abs(new - old), kind="stable")[:MAX_BINS]
    cells = profile.projection.bins[feature]
    found = []
    for index in most:
        mine = np.flatnonzero(cells == index)
        if mine.size and new[index] != old[index]:
            label = profile.bin_label(feature, mine.tolist())
            found.append(BinChange(label, float(old[index]), float(new[index])))
    return tuple(found)
