"""Tensors in trace files, as written by Triton's level TENSORS.

Numbers are decimals, floats with six digits. Of the other datatypes Triton (2.51,
executed) writes nothing that can be read back: those are refused, by datatype and
reason.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.errors import MirrorBodyError
from exporter.triton.tensors import MAX_RANK, array_dtype

if TYPE_CHECKING:
    from exporter.triton.model import Array

INPUT: Final = "TENSOR_QUEUE_INPUT"
OUTPUT: Final = "TENSOR_BACKEND_OUTPUT"
REASONS: Final[dict[str, str]] = {
    "FP16": "empty",
    "BF16": "empty",
    "INT8": "characters",
    "UINT8": "characters",
    "BYTES": "unescaped",
}
"""Reason why a datatype cannot be read: written empty, as raw characters, or unescaped."""
READABLE: Final = frozenset(
    {"BOOL", "UINT16", "UINT32", "UINT64", "INT16", "INT32", "INT64", "FP32", "FP64"}
)
_OTHER: Final = "other"
MAX_TENSORS: Final = 4096
_MAX_SIZE: Final = 2**40

_TENSOR: Final = re.compile(
    rb'\{"id":([0-9]{1,19}),"activity":"(TENSOR_QUEUE_INPUT|TENSOR_BACKEND_OUTPUT)",'
    rb'"tensor":\{"name":"([^"]{1,1024})","data":"([-+0-9.,einfa]*)",'
    rb'"shape":"([0-9,]{0,640})","dtype":"([A-Z]{2,5}[0-9]{0,2})"\}\}'
)
_ENDING: Final = re.compile(
    rb'","shape":"[0-9,]{0,640}","dtype":"([A-Z]{2,5}[0-9]{0,2})"\}\}'
)


@dataclass(frozen=True, slots=True)
class TensorText:
    """One tensor as it stands in the file."""

    name: bytes
    datatype: str
    shape: bytes
    data: bytes


@dataclass(slots=True)
class TracedTensors:
    """The readable tensors of one trace."""

    inputs: list[TensorText] = field(default_factory=list)
    outputs: list[TensorText] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Return the number of tensors."""
        return len(self.inputs) + len(self.outputs)


@dataclass(slots=True)
class Tensors:
    """Tensors of a file by trace id, and counts of those that cannot be read."""

    traces: dict[bytes, TracedTensors] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    """Count by datatype; "other" for unknown ones."""

    def read(self, data: bytes, start: int, end: int) -> None:
        """Read the tensors between two positions."""
        readable: Counter[str] = Counter()
        for key, activity, name, text, shape, dtype in _TENSOR.findall(
            data, start, end
        ):
            datatype = dtype.decode()
            if datatype not in READABLE:
                continue
            readable[datatype] += 1
            trace = self.traces.setdefault(key, TracedTensors())
            if trace.count < MAX_TENSORS:
                held = TensorText(name, datatype, shape, text)
                into = trace.inputs if activity == INPUT.encode() else trace.outputs
                into.append(held)
        found = Counter(match.decode() for match in _ENDING.findall(data, start, end))
        for datatype, number in (found - readable).items():
            known = datatype if datatype in REASONS else _OTHER
            self.refused[known] += number


def arrays(texts: list[TensorText]) -> dict[str, Array]:
    """The tensors by name.

    Raises:
        MirrorBodyError: one does not fill its shape, holds no numbers, or is there
            twice with another content.
    """
    found: dict[str, Array] = {}
    for text in texts:
        name = text.name.decode("utf-8", "replace")
        array = _array(name, text)
        before = found.setdefault(name, array)
        if before is not array and not np.array_equal(before, array, equal_nan=True):
            raise MirrorBodyError(f"found tensor {name!r} twice")
    return found


def _array(name: str, text: TensorText) -> Array:
    sizes = text.shape.split(b",") if text.shape else []
    values = text.data.split(b",") if text.data else []
    if len(sizes) > MAX_RANK:
        raise MirrorBodyError(f"tensor {name!r} has {len(sizes)} dimensions")
    try:
        shape = tuple(int(size) for size in sizes)
        if max(shape, default=0) > _MAX_SIZE or math.prod(shape) != len(values):
            raise MirrorBodyError(f"tensor {name!r} does not fill its shape")
        if text.datatype == "BOOL":
            flags = [value == b"1" for value in values]
            return np.array(flags, np.bool_).reshape(shape)
        if text.datatype.startswith("FP"):
            with np.errstate(over="ignore"):
                floats = np.array([float(value) for value in values], np.float64)
                return floats.astype(array_dtype(text.datatype)).reshape(shape)
        numbers = [int(value) for value in values]
        return np.array(numbers, array_dtype(text.datatype)).reshape(shape)
    except (ValueError, OverflowError):
        raise MirrorBodyError(
            f"tensor {name!r} holds what is no {text.datatype}"
        ) from None
