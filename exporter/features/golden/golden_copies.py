"""Finds golden samples that are (nearly) the same, so that they count once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.numerics.answer_distribution import row_hashes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.numerics.normal import Floats, Ints
    from exporter.triton.protocol_types import Array

NEAR: Final = 0.15
"""Samples no further apart, in standard deviations of every direction, are the same."""
NEAR_OF_FEW: Final = 0.03
"""The same where inputs have less than `FEW` columns that vary: many samples are close."""
FEW: Final = 4
MOST_COMPARED: Final = 20_000
"""Number of samples above which only equal ones are found; also for texts."""
_DIRECTIONS: Final = 8
_CHUNK: Final = 1024
_SEED: Final = 0


def groups_of(inputs: Mapping[str, Array]) -> Ints:
    """(rows,) the same number for samples that are (nearly) the same.

    The first of a group in the order of one random direction leads it: all within `NEAR`
    of it in eight random directions of the standardised inputs are its own. Inputs of
    few numbers may be near without being copies: then it errs towards fewer groups.

    Args:
        inputs: arrays of one or more rows each, all of the same number.
    """
    columns = [array for _, array in sorted(inputs.items())]
    rows = len(columns[0])
    numeric = [a.reshape(rows, -1) for a in columns if a.dtype.kind in "biuf"]
    if rows > MOST_COMPARED or len(numeric) < len(columns):
        return _equal(columns)
    varying = sum(int((a != a[:1]).any(axis=0).sum()) for a in numeric)
    return _near(_projected(numeric), NEAR if varying >= FEW else NEAR_OF_FEW)


def _equal(columns: list[Array]) -> Ints:
    return np.unique(row_hashes(columns), return_inverse=True)[1]


def _projected(columns: list[Array]) -> Floats:
    """(rows, directions) of unit spread; columns that do not vary do not count."""
    rows, rng = len(columns[0]), np.random.default_rng(_SEED)
    found = np.zeros((rows, _DIRECTIONS))
    for column in columns:
        spread = np.nanstd(column.astype(np.float64), axis=0)
        weights = rng.normal(size=(column.shape[1], _DIRECTIONS))
        weights *= np.where(spread > 0, 1.0 / np.where(spread > 0, spread, 1.0), 0)[
            :, None
        ]
        for begin in range(0, rows, _CHUNK):
            part = np.nan_to_num(column[begin : begin + _CHUNK].astype(np.float64))
            found[begin : begin + _CHUNK] += part @ weights
    spread = found.std(axis=0)
    return found / np.where(spread > 0, spread, 1.0)


def _near(places: Floats, apart: float) -> Ints:
    order = np.argsort(places[:, 0], kind="stable")
    ordered = places[order]
    ends = np.searchsorted(ordered[:, 0], ordered[:, 0] + apart, side="right")
    leader = np.full(len(order), -1, np.int64)
    for row, end in enumerate(ends.tolist()):
        if leader[row] >= 0:
            continue
        near = (np.abs(ordered[row:end] - ordered[row]) <= apart).all(axis=1)
        free = leader[row:end]
        free[near & (free < 0)] = row
    groups = np.empty_like(leader)
    groups[order] = leader
    return groups
