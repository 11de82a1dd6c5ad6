"""A KServe-v2 inference body, JSON with or without binary tensors, to arrays.

The binary tensor extension puts the tensors' bytes behind the JSON, in its order; a
header says where the JSON ends. A logger that keeps the body and loses the header leaves
that to be found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from exporter.errors import MirrorBodyError, MirrorUnsupportedError, ProtocolError
from exporter.taps import foreign_json
from exporter.triton.protocol_types import OutputTensor
from exporter.triton.streamed_reply import INPUT, MOST_TOKENS, OUTPUT
from exporter.triton.tensors import FLOATS, MAX_RANK, array_dtype, decode, shown_shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.access.mirror_hub import Tensors
    from exporter.access.work_board import Direction as TokenDirection
    from exporter.triton.protocol_types import Array

Direction = Literal["request", "response"]
TOKEN_NAMES: Final[dict[TokenDirection, str]] = {"input": INPUT, "output": OUTPUT}
Parameters = dict[str, bool | int | float | str]

MAX_TENSORS: Final = 4096
MAX_NAME_CHARACTERS: Final = 256
MAX_PARAMETERS: Final = 64
_SCALARS: Final = (bool, int, float, str)


@dataclass(frozen=True, slots=True)
class Inference:
    """A request or a response. `model` and `version` are "" where it does not say."""

    tensors: Tensors
    request_id: str = ""
    model: str = ""
    version: str = ""
    parameters: Parameters = field(default_factory=dict)
    failed: bool = False
    """The response is an error, and has no tensors."""
    as_sent: bool = True
    """False where the tensors are not those that the model got or sent."""
    tokens: Mapping[TokenDirection, int] = field(default_factory=dict)
    """Tokens that a response reports."""


def read(
    body: bytes, direction: Direction, json_bytes: int | None, most_bytes: int
) -> Inference:
    """The inference that `body` holds; its JSON has `json_bytes`, all of it if None.

    Bodies have at most `most_bytes`.

    Raises:
        MirrorBodyError: it holds none.
    """
    end = len(body) if json_bytes is None else json_bytes
    if not 0 <= end <= len(body):
        raise MirrorBodyError(
            f"the header declares {end} bytes of JSON; the body has {len(body)}"
        )
    if end == 0 and body:
        raise MirrorUnsupportedError(
            "a raw binary request does not describe its tensor; want JSON before it"
        )
    found = document(body[:end], most_bytes)
    failed = (
        direction == "response"
        and "outputs" not in found
        and isinstance(found.get("error"), str)
    )
    tensors = {} if failed else _tensors(found, direction, memoryview(body)[end:])
    parameters = scalars(found.get("parameters"))
    return Inference(
        tensors,
        text(found, "id"),
        text(found, "model_name"),
        text(found, "model_version"),
        parameters,
        failed,
        tokens={**tokens_of(parameters), **tokens_of(tensors)}
        if direction == "response"
        else {},
    )


def tokens_of(
    values: Mapping[str, Array | bool | int | float | str],
) -> dict[TokenDirection, int]:
    """Return the tokens that outputs or parameters of a response report.

    A batch's are added up, as Python's integers, which do not overflow.
    """
    found: dict[TokenDirection, int] = {}
    for direction, name in TOKEN_NAMES.items():
        value = np.asarray(values.get(name))
        if value.dtype.kind in "iu" and 0 < value.size <= MAX_TENSORS:
            number = int(value.astype(object).sum())
            if 0 <= number <= MOST_TOKENS:
                found[direction] = number
    return found


def scalars(parameters: Any) -> Parameters:
    """Return the parameters that are single values, bounded in number and size."""
    if not isinstance(parameters, dict):
        return {}
    kept: Parameters = {}
    for name, value in parameters.items():
        short = not isinstance(value, str) or len(value) <= MAX_NAME_CHARACTERS
        if isinstance(value, _SCALARS) and short and len(name) <= MAX_NAME_CHARACTERS:
            kept[name] = value
        if len(kept) >= MAX_PARAMETERS:
            break
    return kept


def document(content: bytes, most_bytes: int) -> dict[str, Any]:
    """Return the JSON object in `content`; bodies have at most `most_bytes`.

    Raises:
        MirrorBodyError: it is none.
    """
    try:
        found = foreign_json.parse(content, most_bytes)
    except foreign_json.ForeignJsonError as error:
        raise MirrorBodyError(f"cannot read the JSON: {error}") from None
    if not isinstance(found, dict):
        raise MirrorBodyError(
            f"found {type(found).__name__} at the top of the JSON; want an object"
        )
    return found


def text(holder: dict[str, Any], key: str) -> str:
    """Return the short text at `key`, "" where there is none.

    Raises:
        MirrorBodyError: it is no text, too long or unprintable.
    """
    value = holder.get(key, "")
    if not isinstance(value, str):
        raise MirrorBodyError(
            f"found {type(value).__name__} for {key!r}; want a string"
        )
    if len(value) > MAX_NAME_CHARACTERS:
        raise MirrorBodyError(
            f"{key!r} has {len(value)} characters; the maximum is {MAX_NAME_CHARACTERS}"
        )
    if not value.isascii() and not value.isprintable():
        raise MirrorBodyError(f"{key!r} contains unprintable characters")
    return value


def _tensors(
    holder: dict[str, Any], direction: Direction, binary: memoryview
) -> dict[str, Array]:
    key = "inputs" if direction == "request" else "outputs"
    entries = holder.get(key)
    if not isinstance(entries, list) or not entries:
        raise MirrorBodyError(f"found no {key!r}; want an array of tensors")
    if len(entries) > MAX_TENSORS:
        raise MirrorBodyError(
            f"found {len(entries)} {key}; the maximum is {MAX_TENSORS}"
        )
    tensors: dict[str, Array] = {}
    position = 0
    for entry in entries:
        if not isinstance(entry, dict):
            raise MirrorBodyError(f"found {type(entry).__name__} in {key!r}")
        name = text(entry, "name")
        if name in tensors:
            raise MirrorBodyError(f"found tensor {name!r} twice")
        size = _binary_size(name, entry)
        if size is None:
            tensors[name] = from_json(
                name, text(entry, "datatype"), _shape(name, entry), entry.get("data")
            )
            continue
        if size > len(binary) - position:
            raise MirrorBodyError(
                f"tensor {name!r} declares {size} bytes; {len(binary) - position} are "
                "left"
            )
        data = bytes(binary[position : position + size])
        position += size
        tensors[name] = filled(
            OutputTensor(name, text(entry, "datatype"), _shape(name, entry), data)
        )
    if position != len(binary):
        raise MirrorBodyError(
            f"{len(binary) - position} bytes remain after the last tensor"
        )
    return tensors


def filled(tensor: OutputTensor) -> Array:
    """The array of a tensor's raw content.

    Raises:
        MirrorBodyError: the content does not fill the shape.
    """
    try:
        return decode(tensor, "tensor")
    except ProtocolError as error:
        raise MirrorBodyError(str(error)) from None


def _binary_size(name: str, entry: dict[str, Any]) -> int | None:
    parameters = entry.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise MirrorBodyError(f"the parameters of tensor {name!r} are not an object")
    if "shared_memory_region" in parameters:
        raise MirrorUnsupportedError(
            f"tensor {name!r} is in shared memory, which is not supported"
        )
    size = parameters.get("binary_data_size")
    if size is None:
        return None
    if type(size) is not int or size < 0:
        raise MirrorBodyError(
            f"the binary_data_size of tensor {name!r} is not a valid size"
        )
    if "data" in entry:
        raise MirrorBodyError(f"tensor {name!r} has both data and binary_data_size")
    return size


def _shape(name: str, entry: dict[str, Any]) -> tuple[int, ...]:
    shape = entry.get("shape")
    if not isinstance(shape, list) or len(shape) > MAX_RANK:
        raise MirrorBodyError(
            f"tensor {name!r} has no shape; want at most {MAX_RANK} sizes"
        )
    if any(type(size) is not int or not 0 <= size <= 2**63 - 1 for size in shape):
        raise MirrorBodyError(f"the shape of tensor {name!r} contains an invalid size")
    # The product of a shape that no body can fill may have hundreds of digits.
    if math.prod(shape) > 2**63 - 1:
        raise MirrorBodyError(f"the shape of {name!r} is too large")
    return tuple(shape)


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
