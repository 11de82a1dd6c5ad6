"""A small window and a small reference, for the examples in docstrings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from drift.comparison import Baseline
from drift.features import Feature, Schema, Tensor
from drift.fitting import fit

if TYPE_CHECKING:
    from drift.comparison import Comparison


def compare() -> Comparison:
    """Three features of 2,000 reference rows and 1,000 others.

    A normal one as it was, a normal one shifted by a standard deviation, and four
    equally likely categories.
    """
    schema = Schema(
        (Tensor("x", "FP32", (2,)), Tensor("c", "INT64")),
        (
            Feature("same", "x", 0),
            Feature("shifted", "x", 1),
            Feature("category", "c", 0, "categorical"),
        ),
    )
    rng = np.random.default_rng(7)

    def rows(number: int, shift: float) -> dict[str, np.ndarray]:
        values = rng.normal(size=(number, 2)) + np.array([0.0, shift])
        return {
            "x": values.astype(np.float32),
            "c": rng.integers(0, 4, size=number),
        }

    profile = fit(schema, rows(2000, 0.0))
    window = profile.accumulator()
    window.update(rows(1000, 1.0))
    return Baseline(profile).compare(window.take())
