"""Vectors too wide to watch column by column: norms, projections, a kernel distance.

`VectorSketch` turns each vector into a few ordinary features, which the same windows
and alarms watch with the same promise. `FourierKernel` compares whole windows in a
memory that depends on neither rows nor width; it is an effect size beside its null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from drift.comparison import QUANTILE
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
                f"vectors of shape {vectors.shape}; (rows, {self.width}) is right"
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


@dataclass(frozen=True, slots=True)
class Embedded:
    """The mean of a window in the kernel's feature space: `total` (features,), `rows`."""

    total: Floats
    rows: int

    def __add__(self, other: Embedded) -> Embedded:
        return Embedded(self.total + other.total, self.rows + other.rows)


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """Squared maximum mean discrepancy, unbiased, with its null's 99.9 % bound.

    Its null mean is 0. `value` may be a little below 0 when nothing changed.
    """

    value: float
    bound: float


class FourierKernel:
    """Maximum mean discrepancy with a Gaussian kernel by random Fourier features.

    Formula: MMD^2 = |mean phi(x) - mean phi(y)|^2 - h tr(C), with
    phi(x) = sqrt(2 / D) cos(W x + b), W of N(0, 1 / bandwidth^2), b uniform,
    h = 1 / n + 1 / m and C the covariance of phi in the reference. |E phi(x) phi(y)|
    approximates exp(-|x - y|^2 / (2 bandwidth^2)) with an error of about 1 / sqrt(D).

    Null: h times (a weighted sum of chi-squares of mean tr C and variance 2 |C|^2,
    minus tr C); its quantile is the gamma law's with these moments.

    Reference: Rahimi, Recht (2007); Gretton et al. (2012), "A kernel two-sample test".

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> kernel = FourierKernel(rng.normal(size=(2000, 8)))
        >>> same = kernel.compare(kernel.embed(rng.normal(size=(500, 8))))
        >>> other = kernel.compare(kernel.embed(1.0 + rng.normal(size=(500, 8))))
        >>> same.value < same.bound, other.value > other.bound
        (True, True)

    When not to use it: on every row of heavy traffic (a microsecond or more a vector:
    sample rows), or to learn which dimension moved.
    """

    def __init__(
        self,
        reference: NDArray[np.floating],
        *,
        features: int = 256,
        bandwidth: float | None = None,
        seed: int = 0,
        dispersion: float = 1.0,
    ) -> None:
        rows = _clean(np.asarray(reference, np.float64))
        if rows.shape[0] < 2:  # noqa: PLR2004 - a variance needs two
            raise StateError(
                f"{rows.shape[0]} finite reference vectors; at least 2 are needed"
            )
        rng = np.random.Generator(np.random.PCG64(seed))
        self.bandwidth = bandwidth or _median_distance(rows, rng)
        self.dispersion = dispersion
        width = rows.shape[1]
        self._weights = rng.standard_normal((width, features)) / self.bandwidth
        self._phases = rng.uniform(0.0, 2.0 * np.pi, features)
        embedded = self._embed(rows)
        self._reference = Embedded(embedded.sum(axis=0), rows.shape[0])
        covariance = np.atleast_2d(np.cov(embedded.T))
        self._trace = float(np.trace(covariance))
        self._square = float((covariance**2).sum())

    def embed(self, vectors: NDArray[np.floating]) -> Embedded:
        """A window's embedding; embeddings of parts add up. Non-finite rows are left out.

        Raises:
            StateError: the vectors have another width.
        """
        width = self._weights.shape[0]
        if vectors.ndim != 2 or vectors.shape[1] != width:  # noqa: PLR2004 - rows
            raise StateError(
                f"vectors of shape {vectors.shape}; (rows, {width}) is right"
            )
        rows = _clean(np.asarray(vectors, np.float64))
        return Embedded(self._embed(rows).sum(axis=0), rows.shape[0])

    def _embed(self, rows: Floats) -> Floats:
        features = self._phases.shape[0]
        angles = rows @ self._weights
        angles += self._phases
        return np.asarray(np.cos(angles) * np.sqrt(2.0 / features))

    def compare(self, window: Embedded) -> Discrepancy:
        """A window beside the reference; NaN of a window without rows."""
        if window.rows == 0:
            return Discrepancy(float("nan"), float("nan"))
        from scipy.special import gammaincinv  # noqa: PLC0415 - not at import

        reference = self._reference
        spread = 1.0 / window.rows + 1.0 / reference.rows
        gap = window.total / window.rows - reference.total / reference.rows
        value = float(gap @ gap) - spread * self._trace
        if self._square == 0.0:
            return Discrepancy(value, 0.0)
        shape = self._trace**2 / (2.0 * self._square)
        quantile = gammaincinv(shape, QUANTILE) * 2.0 * self._square / self._trace
        dependent = self.dispersion * quantile - self._trace
        return Discrepancy(value, spread * float(dependent))


def _clean(rows: Floats) -> Floats:
    return np.asarray(rows[np.isfinite(rows).all(axis=1)])


def _median_distance(rows: Floats, rng: np.random.Generator) -> float:
    """Median distance between random pairs of rows, the usual bandwidth."""
    first, second = rng.integers(0, rows.shape[0], size=(2, 1000))
    distances = np.linalg.norm(rows[first] - rows[second], axis=1)
    positive = distances[distances > 0]
    return float(np.median(positive)) if positive.size else 1.0
