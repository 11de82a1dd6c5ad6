"""The tensors of requests, in the shape in which a drift window counts them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift.column_ring import LEFT_OUT
from drift.embeddings import VectorSketch
from drift.errors import DriftError
from drift.numerics.answer_distribution import shape_of
from drift.text_features import SUFFIX, text_numbers, text_source
from exporter.features.drift.drift_tensors import (
    CONFIDENCE,
    MOMENTS,
    SKETCH,
    scored,
    sketched,
    source_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from drift.features import Schema
    from exporter.features.drift.drift_tensors import Declared

    Tensors = Mapping[str, NDArray[np.generic[Any]]]


class Rows:
    """Brings the tensors of a request into the shape a window counts.

    It raises nothing, whatever the request contains: tensors that do not fit are passed
    on unchanged, and the window counts them as violations. Optional ones that a request
    leaves out are missing values.
    """

    def __init__(self, schema: Schema, tensors: Mapping[str, Declared]) -> None:
        self._watched = {tensor.name for tensor in schema.tensors}
        self._whole = {t.name: t.row_shape for t in tensors.values() if t.whole}
        self._datatypes = {
            tensor.name: np.dtype(_NUMPY[tensor.datatype])
            for tensor in schema.tensors
            if tensor.name in tensors
            and tensor.datatype in _NUMPY
            and tensors[tensor.name].datatype != tensor.datatype
        }
        self._categories = {f.tensor for f in schema.features if f.kind != "numeric"}
        self._sketches = {
            source.name: VectorSketch(
                source.name, source.width, projections=tensor.width - MOMENTS
            )
            for tensor in schema.tensors
            if tensor.name not in tensors
            and (source := sketched(tensor, tensors)) is not None
        }
        self._shapes = {name: tensors[name].row_shape for name in self._sketches}
        self._confidences = {
            source.name
            for tensor in schema.tensors
            if tensor.name not in tensors
            and (source := scored(tensor, tensors)) is not None
        }
        self._texts = {text_source(tensor) for tensor in schema.tensors}
        self._texts &= tensors.keys()
        self._ignored = tensors.keys() - self._watched - self._sketches.keys()
        self._optional = {
            tensor.name
            for tensor in schema.tensors
            if (source := source_of(tensor, tensors)) is not None and source.optional
        }

    def of(self, request: Tensors) -> Tensors:
        """Tensors by the schema's names, each (rows, *row_shape)."""
        found: dict[str, NDArray[np.generic[Any]]] = {}
        for name, tensor in request.items():
            rows = tensor
            if name in self._whole and tensor.shape == self._whole[name]:
                rows = tensor[None]
            if name in self._confidences:
                found[name + CONFIDENCE] = _confidence(rows)
            if name in self._texts:
                found[name + SUFFIX] = _text(rows)
            if name in self._ignored:
                continue
            if name in self._sketches:
                found[name + SKETCH] = self._sketch(name, rows)
            else:
                found[name] = self._converted(name, rows)
        if self._optional and found.keys() & self._watched:
            found |= dict.fromkeys(self._optional - found.keys(), LEFT_OUT)
        return found

    def _converted(
        self, name: str, rows: NDArray[np.generic[Any]]
    ) -> NDArray[np.generic[Any]]:
        wanted = self._datatypes.get(name)
        if wanted is None or rows.dtype.kind != "f":
            return rows
        if rows.dtype.itemsize < wanted.itemsize:
            rows = _widened(rows, exact=name not in self._categories)
        with np.errstate(over="ignore"):
            return rows.astype(wanted)

    def _sketch(
        self, name: str, rows: NDArray[np.generic[Any]]
    ) -> NDArray[np.generic[Any]]:
        fits = rows.ndim > 0 and rows.shape[1:] == self._shapes[name]
        if not fits or rows.dtype.kind not in "fiub":
            return rows
        vectors = rows.reshape(rows.shape[0], -1)
        try:
            return self._sketches[name].apply(vectors)  # type: ignore[arg-type]
        except DriftError:
            return rows


def _widened(
    rows: NDArray[np.generic[Any]], *, exact: bool
) -> NDArray[np.generic[Any]]:
    """Floats as the shortest decimals that they stand for: 0.1 is 0.1 in any width.

    Names of categories need that, and values of half width, which are further from the
    reference's than its cells are wide. `exact` leaves those of single width as they are.
    """
    if rows.dtype.itemsize == _HALF.itemsize:
        return np.asarray(_decimals_of_halves()[rows.view(np.uint16)])
    if exact:
        return rows
    flat = rows.reshape(-1)
    found = np.empty(flat.shape)
    # A text takes 128 bytes.
    for start in range(0, flat.size, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        found[part] = flat[part].astype(str).astype(np.float64)
    return found.reshape(rows.shape)


@cache
def _decimals_of_halves() -> NDArray[np.float64]:
    """The shortest decimal of each float of half width, by its bits."""
    every = np.arange(1 << 16, dtype=np.uint16).view(_HALF)
    return np.asarray(every.astype(str).astype(np.float64))


def _text(rows: NDArray[np.generic[Any]]) -> NDArray[np.generic[Any]]:
    """The numbers of each row's text; rows of anything else as they are."""
    if rows.dtype.kind not in "OSU" or not rows.ndim or rows.size != rows.shape[0]:
        return rows
    return text_numbers(rows)


def _confidence(rows: NDArray[np.generic[Any]]) -> NDArray[np.generic[Any]]:
    """The largest probability of each row, NaN where there are no probabilities."""
    if not rows.ndim or not rows.size:
        return np.full(rows.shape[:1], np.nan, np.float32)
    # Not as golden answers are read: with the first of them all values would change.
    confidence = shape_of(rows).confidence
    if confidence is None:
        return np.full(rows.shape[0], np.nan, np.float32)
    return confidence.astype(np.float32)


_HALF: Final = np.dtype("f2")
_AT_ONCE: Final = 1 << 14
_NUMPY: Final = {"FP16": "f2", "BF16": "f4", "FP32": "f4", "FP64": "f8"}
