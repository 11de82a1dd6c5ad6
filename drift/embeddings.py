"""Vectors too wide to monitor column by column, reduced to norms and projections.

`VectorSketch` turns each vector into a few ordinary features, which the same windows
and alarms monitor with the same false-alarm guarantee.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from drift.errors import SchemaError, StateError
from drift.features import Feature, Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MAX_WIDTH = 1 << 16


class VectorSketch:
    """Norm, mean, deviation and random projections of each vector.

    Formula: |x|, mean(x), sd(x), and P x with P of independent N(0, 1 / width) entries
    drawn from `seed`, so that replicas agree. The law of x is determined by the laws of
    its projections, and distances are kept up to 1 +- eps by O(log n / eps^2) of them.

    Reference: Cramer, Wold (1936); Johnson, Lindenstrauss (1984).

    Example:
        >>> import numpy as np
        >>> sketch = VectorSketch("embedding", 384, projections=2)
        >>> sketch.apply(np.ones((5, 384), np.float32)).shape, len(sketch.features)
        ((5, 5), 5)

    When not to use it: where single dimensions have a meaning and may change alone (a
    shift of one of d dimensions is seen at 1 / sqrt(d) of its size): name those as
    features.
    """

    def __init__(
        self, tensor: str, width: int, *, projections: int = 32, seed: int = 0
    ) -> None:
        if not 0 < width <= MAX_WIDTH:
            raise SchemaError(
                f"{tensor!r} has vectors of {width} values; 1 to {MAX_WIDTH} can be sketched"
            )
        self.width = width
        self._source = tensor
        rng = np.random.Generator(np.random.PCG64(seed))
        matrix = rng.standard_normal((width, projections)) / np.sqrt(width)
        self._matrix = matrix.astype(np.float32)

    @property
    def tensor(self) -> Tensor:
        """The tensor that `apply` makes, for a `Schema`."""
        return Tensor(f"{self._source}.sketch", "FP32", (3 + self._matrix.shape[1],))

    @property
    def features(self) -> tuple[Feature, ...]:
        """Its columns as features, for a `Schema`."""
        count = self._matrix.shape[1]
        names = ["norm", "mean", "deviation", *(f"projection{i}" for i in range(count))]
        return tuple(
            Feature(f"{self._source}.{name}", self.tensor.name, column)
            for column, name in enumerate(names)
        )

    def apply(self, vectors: NDArray[np.floating]) -> NDArray[np.float32]:
        """Sketch (rows, width) into (rows, 3 + projections).

        A vector with a NaN or an infinity is NaN throughout: it counts as missing.

        Raises:
            StateError: the vectors have another width.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.width:  # noqa: PLR2004 - rows
            raise StateError(
                f"found vectors of shape {vectors.shape}; want (rows, {self.width})"
            )
        x = np.asarray(vectors, np.float32)
        clean = np.asarray(np.isfinite(x).all(axis=1))
        x = np.where(clean[:, None], x, np.float32(0.0))
        # Scaled first, so that squares of large values stay finite.
        largest = np.maximum(np.abs(x).max(axis=1, initial=0.0), np.float32(1e-30))
        scaled = x / largest[:, None]
        mean = scaled.mean(axis=1)
        columns = [
            largest * np.sqrt(np.einsum("nd,nd->n", scaled, scaled)),
            largest * mean,
            largest * scaled.std(axis=1),
        ]
        sketch = np.column_stack((*columns, x @ self._matrix))
        sketch[~clean] = np.nan
        return np.asarray(sketch, np.float32)
