"""The pairs of columns whose correlation changed, from the batches of a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from drift.reference import Profile

MAX_PAIRS: Final = 3
_FALSE_PAIRS: Final = 0.01
"""Accepted chance of naming any pair besides the strongest without a change in it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two columns, and their mean correlation in batches of the reference and since.

    For a category it is the correlation of the value, or group of values, that changed most.
    """

    first: str
    second: str
    reference: float
    current: float

    def __str__(self) -> str:
        return (
            f"{self.first} and {self.second}: correlation "
            f"{self.reference:.2f} -> {self.current:.2f}"
        )


@dataclass(frozen=True, slots=True)
class JointSums:
    """The deviations of Fisher's z from the reference, added up over `batches`.

    `apart` (pairs,) are the pairs above the diagonal, each in units of its own standard
    deviation in the reference's batches.
    """

    apart: NDArray[np.float32]
    batches: int

    def __add__(self, other: JointSums) -> JointSums:
        return JointSums(self.apart + other.apart, self.batches + other.batches)


def changed_pairs(profile: Profile, parts: Iterable[JointSums]) -> tuple[Pair, ...]:
    """Return the pairs that changed most, at most `MAX_PAIRS`, strongest first.

    Others than the strongest must themselves differ from the reference, at the level
    `_FALSE_PAIRS` shared among all pairs, and be at least half as far from it as the
    strongest. Empty without a batch.
    """
    from scipy.special import ndtri  # noqa: PLC0415 - 0.1 s, not at import

    model, found = profile.joint, list(parts)
    batches = sum(part.batches for part in found)
    if model is None or not batches:
        return ()
    reference = float(profile.counts.values[-1])
    apart = np.stack([part.apart for part in found]).sum(axis=0, dtype=np.float64)
    strength = np.abs(apart) / batches / np.sqrt(1 / batches + 1 / reference)
    enough = max(
        strength.max() / 2, -float(ndtri(_FALSE_PAIRS / 2 / strength.shape[0]))
    )
    rows, columns = np.triu_indices(model.mean.shape[0], 1)
    names = _column_names(profile)
    pairs: dict[tuple[str, str], Pair] = {}
    for place in np.argsort(-strength, kind="stable").tolist():
        if len(pairs) == MAX_PAIRS or (pairs and strength[place] < enough):
            break
        at = rows[place], columns[place]
        mean, deviation = float(model.mean[at]), float(model.deviation[at])
        both = names[at[0]], names[at[1]]
        pairs.setdefault(
            both,
            Pair(
                *both,
                float(np.tanh(mean)),
                float(np.tanh(mean + deviation * apart[place] / batches)),
            ),
        )
    return tuple(pairs.values())


def _column_names(profile: Profile) -> list[str]:
    """The feature of each column of the joint model."""
    model, names = profile.joint, profile.schema.names
    if model is None:
        return []
    found = [names[place] for place in model.used]
    for name, code in zip(names[profile.schema.numeric :], model.codes, strict=True):
        found += [name] * code.chosen.size
    return found
