"""Distribution of answers without labels: confidence, classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from drift.numerics.normal import Bools, Floats, Ints

MAX_CLASSES: Final = 1_000
_ROUNDING: Final = 1e-3
_MOST: Final = 0.5


@dataclass(frozen=True, slots=True)
class Shape:
    """Distribution of the rows of answers; each array has one value a row.

    `scores` are probabilities where the output is one of classes, else None, and with
    it the rest. What is not finite in an answer is NaN here.
    """

    scores: Floats | None = None
    confidence: Floats | None = None
    predicted: Ints | None = None
    """Number of the class; -1 if no class has the highest score, as for all zeros."""


def shape_of(
    output: NDArray[np.generic],
    *,
    classes: bool | None = None,
    logits: bool | None = None,
) -> Shape:
    """The rows of an output tensor, rows first.

    `classes` says whether its last axis is classes; None takes it for that where there
    are 2 to `MAX_CLASSES` columns of numbers that could be probabilities. `logits` says
    whether scores of classes are logits; None judges by these rows.
    """
    if output.dtype.kind not in "biuf":
        return Shape()
    rows = output.reshape(len(output), -1).astype(np.float64)
    if classes is None:
        classes = 1 < rows.shape[1] <= MAX_CLASSES and _may_be_probabilities(rows)
    if not classes:
        return Shape()
    if logits is None:
        logits = bool(no_probabilities(rows).any())
    scores = probabilities(rows, logits)
    finite = np.isfinite(scores).all(axis=1)
    filled = np.where(np.isnan(scores), -np.inf, scores)
    best = filled.max(axis=1)
    alone = (filled == best[:, None]).sum(axis=1) == 1
    return Shape(
        scores,
        np.where(finite, best, np.nan),
        np.where(alone & np.isfinite(best), filled.argmax(axis=1), -1),
    )


def no_probabilities(rows: Floats) -> Bools:
    """(rows,) whether a finite row has a value that is no probability."""
    with np.errstate(invalid="ignore"):
        outside = ((rows < -_ROUNDING) | (rows > 1 + _ROUNDING)).any(axis=1)
    return np.asarray(outside & np.isfinite(rows).all(axis=1), np.bool_)


def probabilities(rows: Floats, logits: bool) -> Floats:  # noqa: FBT001 - of one caller
    """Rows of probabilities: as they are, of logits, or of one column of a yes.

    All zeros stay all zeros: a model that gives no class any chance is not made to look
    undecided.
    """
    if rows.shape[1] == 1:
        yes = 1.0 / (1.0 + np.exp(-np.clip(rows, -500.0, 500.0))) if logits else rows
        return np.hstack([1.0 - yes, yes])
    if not logits:
        return rows
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float64)


def _may_be_probabilities(rows: Floats) -> bool:
    finite = rows[np.isfinite(rows).all(axis=1)]
    if not finite.size or no_probabilities(finite).any():
        return False
    return bool((np.abs(finite.sum(axis=1) - 1.0) < _ROUNDING).mean() > _MOST)


def row_hashes(columns: Sequence[NDArray[Any]]) -> Ints:
    """(rows,) hashes over all columns of each row; not the same in another process."""
    parts = [
        # An array of objects holds addresses.
        [tuple(row.ravel()) for row in column]
        if column.dtype.kind == "O"
        else [row.tobytes() for row in column]
        for column in columns
    ]
    return np.array([hash(row) for row in zip(*parts, strict=True)], np.int64)
