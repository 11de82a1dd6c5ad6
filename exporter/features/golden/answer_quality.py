"""Scores: agreement, areas, precision, cosines. Pure functions of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from drift.numerics.answer_distribution import no_probabilities

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from drift.numerics.normal import Bools, Floats, Ints
    from exporter.triton.protocol_types import Array

_SHOWN: Final = 4
_BINARY: Final = 2
_LARGEST_CLASS: Final = 2.0**31
_GLITCHES: Final = 0.05
"""Share of answers up to which values that are no probabilities are taken for errors."""


def agree(found: Array, wanted: Array, relative: float, absolute: float) -> Bools:
    """(rows,) whether whole rows are equal: numbers within tolerance, all else exactly."""
    rows = len(wanted)
    if found.shape != wanted.shape and found.size != wanted.size:
        return np.zeros(rows, np.bool_)
    left, right = found.reshape(rows, -1), wanted.reshape(rows, -1)
    if left.dtype.kind in "fiub" and right.dtype.kind in "fiub":
        if left.dtype.kind != "f" and right.dtype.kind != "f":
            # Not as floats, which make large neighbours equal.
            return np.asarray((left == right).all(axis=1))
        return np.asarray(
            np.isclose(
                left.astype(np.float64),
                right.astype(np.float64),
                *(relative, absolute),
                equal_nan=True,
            ).all(axis=1)
        )
    # An array of text of one length, as npz files have, ends with its last byte but NUL.
    end = b"\0" if right.dtype.kind in "SU" else b""
    same = [
        [content(a).rstrip(end) == content(b) for a, b in zip(one, other, strict=True)]
        for one, other in zip(left, right, strict=True)
    ]
    return np.asarray(np.array(same, np.bool_).reshape(rows, -1).all(axis=1), np.bool_)


class ScoreReading:
    """Decides whether the scores of a golden set's answers are `logits`.

    A few answers with values outside [0, 1] may be errors; of logits there are many.
    """

    def __init__(self, rows: int) -> None:
        self._outside, self._seen = np.zeros((2, rows), np.bool_)
        self.logits = False

    def changes(self, places: Ints, output: Array) -> bool:
        """Add the answers to these samples; return whether earlier ones were misread."""
        if output.dtype.kind not in "biuf":
            return False
        rows = output.reshape(len(places), -1).astype(np.float64)
        self._outside[places], self._seen[places] = no_probabilities(rows), True
        before = self.logits
        self.logits = bool(self._outside[self._seen].mean() > _GLITCHES)
        return self.logits != before


def content(value: object) -> bytes:
    """A label or a BYTES element as bytes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def named_classes(output: Array, names: Mapping[str, int]) -> Ints | None:
    """Number of the class that each row names, -1 for none; None if it has scores.

    Text is the name of a class, of `names`, or else none. A number alone is one if it is
    an integer, or if there are more than two classes, of which it cannot be the score.
    """
    rows = len(output)
    nothing = np.full(rows, -1)
    if output.dtype.kind == "O":
        values = output.ravel().tolist()
        known = np.array([names.get(text(value), -1) for value in values], np.int64)
        return known if output.size == rows else nothing
    if not output.size:
        return nothing
    is_score = output.dtype.kind == "f" and max(names.values()) < _BINARY
    if output.size != rows or is_score:
        return None
    numbers = output.ravel().astype(np.float64)
    whole = (numbers == np.rint(numbers)) & (np.abs(numbers) < _LARGEST_CLASS)
    found = np.where(whole, numbers, -1).astype(np.int64).tolist()
    return np.array([names.get(str(number), number) for number in found], np.int64)


def ranks(scores: Floats, truth: Ints) -> Ints:
    """(rows,) classes that score at least as high as the true one; ties count against it."""
    known = truth < scores.shape[1]
    own = scores[np.arange(len(truth)), np.where(known, truth, 0)]
    higher = (scores >= own[:, None]).sum(axis=1) - 1
    return np.asarray(np.where(known, higher, scores.shape[1]))


def auc(truth: Ints, scores: Floats) -> float | None:
    """Area under the ROC: of class 1 of two, else the mean over one against the rest."""
    classes = range(1, 2) if scores.shape[1] == _BINARY else range(scores.shape[1])
    areas = [_area(truth == k, scores[:, k]) for k in classes]
    known = [area for area in areas if area is not None]
    return float(np.mean(known)) if known else None


def _area(positive: Bools, score: Floats) -> float | None:
    """Mann and Whitney: how often a positive scores above a negative, ties half."""
    known = np.isfinite(score)
    positive, score = positive[known], score[known]
    ones = int(positive.sum())
    zeros = positive.size - ones
    if not ones or not zeros:
        return None
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = (last - (counts - 1) / 2.0)[place]
    return float((ranks[positive].sum() - ones * (ones + 1) / 2.0) / (ones * zeros))


def precision_recall(truth: Ints, predicted: Ints) -> Iterator[tuple[str, float]]:
    """Precision, recall, F1: of class 1 of two, else the mean over the labels' classes."""
    classes = np.unique(truth)
    chosen = np.array([1]) if classes.max() < _BINARY else classes
    hits = np.array([((truth == k) & (predicted == k)).sum() for k in chosen])
    said = np.array([(predicted == k).sum() for k in chosen])
    there = np.array([(truth == k).sum() for k in chosen])
    precision = np.divide(hits, said, out=np.zeros(len(chosen)), where=said > 0)
    recall = np.divide(hits, there, out=np.zeros(len(chosen)), where=there > 0)
    both = precision + recall
    f1 = np.divide(
        2 * precision * recall, both, out=np.zeros(len(chosen)), where=both > 0
    )
    yield "precision", float(precision.mean())
    yield "recall", float(recall.mean())
    yield "f1", float(f1.mean())


def cosines(found: Array, wanted: Array) -> Floats:
    """(rows,) cosine of the angle between found and wanted; NaN where they have none."""
    rows = len(wanted)
    numeric = found.dtype.kind in "fiub" and wanted.dtype.kind in "fiub"
    if not numeric or found.size != wanted.size:
        return np.full(rows, np.nan)
    left = found.reshape(rows, -1).astype(np.float64)
    right = wanted.reshape(rows, -1).astype(np.float64)
    size = np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
    # Nothing points nowhere: as unlike the expected as can be, unless it is expected.
    same = (left == right).all(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (left * right).sum(axis=1) / size
    return np.asarray(np.where(size > 0, found, same.astype(np.float64)))


def text(value: object) -> str:
    """A label or a BYTES element as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def shown(row: Array) -> str:
    """The beginning of a tensor, for people."""
    flat = np.asarray(row).ravel()
    parts = ", ".join(
        f"{v:.4g}" if isinstance(v, float | np.floating) else text(v)[:40]
        for v in flat[:_SHOWN]
    )
    return f"[{parts}{', …' if flat.size > _SHOWN else ''}]"
