"""How far two answers to the same request are apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from exporter.triton.tensors import FLOATS, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.triton.model import Array, OutputTensor

Rule = Literal["auto", "argmax", "close"]
_CLASSES: Final = 2


@dataclass(frozen=True, slots=True)
class Apart:
    """Whether two answers agree, and their distance in [0, 1], 0 where they are equal."""

    agree: bool
    distance: float


def apart(
    champion: Sequence[OutputTensor],
    challenger: Sequence[OutputTensor],
    rule: Rule,
    tolerance: float,
) -> Apart:
    """Compare every output that both have.

    The distance of two float outputs is |a - b| / (|a| + |b|) in the Euclidean norm,
    which the triangle inequality keeps in [0, 1]; of others the share of unequal
    elements. The largest counts. NaN and Inf are equal to themselves alone.

    Raises:
        ProtocolError: an output's bytes do not fill its shape.
    """
    theirs = {output.name: output for output in challenger}
    agree, distance = True, 0.0
    for ours in champion:
        other = theirs.get(ours.name)
        if other is None:
            continue
        a, b = decode(ours), decode(other)
        if a.shape != b.shape:
            return Apart(agree=False, distance=1.0)
        floats = ours.datatype in FLOATS and other.datatype in FLOATS
        distance = max(distance, _distance(a, b) if floats else _unequal(a, b))
        agree = agree and _agree(a, b, rule, tolerance, floats=floats)
    return Apart(agree, distance)


def predicted(outputs: Sequence[OutputTensor]) -> int | None:
    """The class that the first output names, or scores highest; None where it is none.

    Raises:
        ProtocolError: its bytes do not fill its shape.
    """
    if not outputs:
        return None
    scores = decode(outputs[0])
    if outputs[0].datatype == "BYTES" or not scores.size:
        return None
    if scores.size == 1:
        value = float(scores.flat[0])
        return round(value) if np.isfinite(value) else None
    flat = scores.reshape(-1)
    if outputs[0].datatype in FLOATS and not np.isfinite(flat.astype(float)).all():
        return None
    return int(flat.argmax())


def _distance(a: Array, b: Array) -> float:
    x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    odd = ~(np.isfinite(x) & np.isfinite(y))
    if odd.any():
        if not np.array_equal(x[odd], y[odd], equal_nan=True):
            return 1.0
        x, y = x[~odd], y[~odd]
    largest = max(np.abs(x).max(initial=0), np.abs(y).max(initial=0))
    if not largest:
        return 0.0
    # Scaled, since squares of large values overflow and of small ones vanish.
    x, y = x / largest, y / largest
    lengths = float(np.linalg.norm(x) + np.linalg.norm(y))
    return min(1.0, float(np.linalg.norm(x - y)) / lengths)


def _unequal(a: Array, b: Array) -> float:
    return float(np.mean(a != b)) if a.size else 0.0


def _agree(a: Array, b: Array, rule: Rule, tolerance: float, *, floats: bool) -> bool:
    if not floats:
        return bool(np.array_equal(a, b))
    x, y = a.astype(np.float64), b.astype(np.float64)
    classes = x.ndim > 0 and x.shape[-1] >= _CLASSES
    if rule == "argmax" or (rule == "auto" and classes):
        finite = np.isfinite(x).all() and np.isfinite(y).all()
        same = x.size == 0 or np.array_equal(x.argmax(-1), y.argmax(-1))
        return bool(same and (finite or np.array_equal(x, y, equal_nan=True)))
    return bool(np.allclose(x, y, rtol=tolerance, atol=tolerance / 1e3, equal_nan=True))
