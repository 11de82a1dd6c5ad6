"""The `data` of a KServe-v2 JSON tensor to an array, as Triton itself would take it."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from exporter.errors import MirrorBodyError, ProtocolError
from exporter.triton.tensors import FLOATS, MAX_RANK, array_dtype, shown_shape

if TYPE_CHECKING:
    from exporter.triton.protocol_types import Array

_NUMBERS: Final[frozenset[type]] = frozenset({int, float})
_WANTED: Final[dict[str, frozenset[type]]] = {
    "BOOL": frozenset({bool}),
    "BYTES": frozenset({str}),
    **dict.fromkeys(FLOATS, _NUMBERS),
}
"""JSON types of a datatype's elements; integers for all others."""
_INTEGERS: Final[frozenset[type]] = frozenset({int})


def from_json(name: str, datatype: str, shape: tuple[int, ...], data: Any) -> Array:
    """The array of `shape` that `data`, flat or nested, holds in row-major order.

    Raises:
        MirrorBodyError: it does not fill the shape, or holds what is no `datatype`.
    """
    if not isinstance(data, list):
        raise MirrorBodyError(f"tensor {name!r} has no data; want an array")
    try:
        dtype = array_dtype(datatype)
    except ProtocolError as error:
        raise MirrorBodyError(f"tensor {name!r}: {error}") from None
    elements, kinds = _flat(name, data)
    wanted = _WANTED.get(datatype, _INTEGERS)
    if not kinds <= wanted:
        found = ", ".join(sorted(kind.__name__ for kind in kinds - wanted))
        raise MirrorBodyError(
            f"tensor {name!r} contains {found}, which are not {datatype}"
        )
    if len(elements) != math.prod(shape):
        raise MirrorBodyError(
            f"tensor {name!r} has {len(elements)} elements; its shape "
            f"{shown_shape(shape)} has {math.prod(shape)}"
        )
    try:
        if datatype == "BYTES":
            array: Array = np.empty(len(elements), dtype=np.object_)
            array[:] = [text.encode() for text in elements]
        else:
            # Beyond the largest float is infinite, as a float's own rounding says.
            with np.errstate(over="ignore"):
                array = np.array(elements, dtype=dtype)
        return array.reshape(shape)
    except (OverflowError, ValueError) as error:
        raise MirrorBodyError(f"tensor {name!r} is not {datatype}: {error}") from None


def _flat(name: str, data: list[Any]) -> tuple[list[Any], set[type]]:
    """The elements of nested lists, and their types."""
    # Types first: numpy would make one text of a million characters as wide as the
    # array, and numbers of texts.
    for _ in range(MAX_RANK):
        kinds = set(map(type, data))
        if list not in kinds:
            return data, kinds
        if len(kinds) > 1:
            raise MirrorBodyError(f"tensor {name!r} mixes lists with elements")
        data = list(chain.from_iterable(data))
    raise MirrorBodyError(f"tensor {name!r} is nested in more than {MAX_RANK} lists")
