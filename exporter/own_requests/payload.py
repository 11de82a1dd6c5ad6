"""Input tensors made from a model's own signature and the configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
from pydantic import Field, field_validator, model_validator

from exporter.errors import UnsendableError, UnusableFileError
from exporter.settings import Settings
from exporter.system import whole_file
from exporter.triton.tensors import FLOATS, MAX_RANK, array_dtype, shown_shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from exporter.triton.protocol_types import Array, ModelSpec, TensorSpec

MAX_ELEMENTS: Final = 16 * 1024 * 1024
"""Limit of elements of all inputs of one request together."""
MAX_BYTES: Final = 63 * 1024 * 1024
"""Limit of bytes of all inputs of one request together: those of one gRPC message."""
# Bytes that an input takes beside its values.
_INPUT_BYTES: Final = 1 << 14
# A word of our own with its length; in memory it is an object of this size.
_WORD_BYTES: Final = 64
Scalar = bool | int | float | str
Number = int | float
Size = Annotated[int, Field(ge=0, le=MAX_ELEMENTS)]

LARGEST: Final = {
    "FP16": 65504.0,
    "BF16": 2.0**127 * (2 - 2**-7),
    "FP32": float(np.finfo(np.float32).max),
    "FP64": float(np.finfo(np.float64).max),
}
"""Largest finite value of each float datatype."""


class InputSettings(Settings):
    """Content of one input tensor. What is left out comes from the model's metadata."""

    shape: tuple[Size, ...] | None = Field(default=None, max_length=16)
    """Shape in place of the declared one, including the batch dimension; no -1."""
    range: tuple[Number, Number] | None = Field(default=None)
    """Values are drawn uniformly from this range. For integers both ends are included.
    """
    values: tuple[Scalar, ...] | None = Field(default=None, min_length=1)
    """Values are drawn from this list."""
    files: tuple[Path, ...] | None = Field(default=None, min_length=1, max_length=100)
    """Values are drawn from the contents of these files, for BYTES such as a JPEG."""
    omit: bool = Field(default=False)
    """Leave out this optional input."""

    @field_validator("range")
    @classmethod
    def _ordered(cls, ends: tuple[Number, Number] | None) -> object:
        if ends is not None and ends[0] > ends[1]:
            raise ValueError("want [low, high] with low at most high")
        return ends

    @model_validator(mode="after")
    def _consistent(self) -> InputSettings:
        sources = {"range": self.range, "values": self.values, "files": self.files}
        found = [name for name, given in sources.items() if given is not None]
        if len(found) > 1:
            raise ValueError(f"found {' and '.join(found)}; set one of them")
        return self


@dataclass(frozen=True, slots=True)
class Payload:
    """Arrays by input name, and their Triton datatypes."""

    inputs: dict[str, Array]
    datatypes: dict[str, str]


def make_payload(
    spec: ModelSpec,
    overrides: dict[str, InputSettings],
    rng: np.random.Generator,
) -> Payload:
    """Return one request's inputs, drawn anew so that a response cache does not answer.

    Open dimensions become 1. Floats come evenly from [0, 1), integers from {0, 1},
    which index any vocabulary; BYTES are short words. Optional inputs are left out
    unless the config names them or nothing else would be sent, which Triton refuses.

    Raises:
        UnsendableError: the config does not fit the model's signature.
    """
    known = {tensor.name for tensor in spec.inputs}
    unknown = sorted(overrides.keys() - known)
    if unknown:
        raise UnsendableError(
            f"the config names inputs {unknown}; {spec.name} has {sorted(known)}"
        )
    payload = Payload({}, {})
    left, left_bytes = MAX_ELEMENTS, MAX_BYTES
    for tensor in chosen_inputs(spec, overrides):
        override = overrides.get(tensor.name)
        settings = override or InputSettings()
        choices = _choices(tensor, settings)
        element_bytes = _element_bytes(tensor.datatype, choices)
        most = min(left, left_bytes // element_bytes)
        array = _array(tensor, settings, choices, rng, most)
        left -= array.size
        left_bytes -= array.size * element_bytes + _INPUT_BYTES
        payload.inputs[tensor.name] = array
        payload.datatypes[tensor.name] = tensor.datatype
    return payload


def chosen_inputs(
    spec: ModelSpec, overrides: Mapping[str, InputSettings]
) -> Sequence[TensorSpec]:
    """Return the inputs that are sent."""
    named = overrides.keys()
    chosen = [
        tensor
        for tensor in spec.inputs
        if not (
            overrides[tensor.name].omit if tensor.name in named else tensor.optional
        )
    ]
    return chosen or [tensor for tensor in spec.inputs if tensor.name not in named]


def _array(
    tensor: TensorSpec,
    settings: InputSettings,
    choices: Array | None,
    rng: np.random.Generator,
    most: int,
) -> Array:
    shape = _shape(tensor, settings, most)
    array = np.empty(shape, dtype=array_dtype(tensor.datatype))
    if choices is not None:
        array[...] = choices[rng.integers(0, len(choices), size=shape)]
    elif tensor.datatype == "BYTES":
        array[...] = np.frompyfunc(lambda n: b"probe-%d" % n, 1, 1)(
            rng.integers(0, 1_000_000, size=shape)
        )
    elif tensor.datatype in FLOATS:
        low, high = _float_ends(tensor, settings)
        # Not low + (high - low) * share: the difference can be infinite.
        share = rng.random(size=shape)
        array[...] = np.clip(low * (1 - share) + high * share, low, high)
    else:
        low, high = _integer_ends(tensor, settings)
        array[...] = rng.integers(
            low, high, size=shape, endpoint=True, dtype=array.dtype.type
        )
    return array


def _shape(tensor: TensorSpec, settings: InputSettings, most: int) -> tuple[int, ...]:
    shape = settings.shape
    if shape is None:
        shape = tuple(1 if size < 0 else size for size in tensor.shape)
    elif not _fits(shape, tensor.shape):
        raise UnsendableError(
            f"the config gives input {tensor.name!r} the shape {list(shape)}; the "
            f"model expects {shown_shape(tensor.shape)}"
        )
    # The rank first: the product of a million sizes takes hours.
    if (
        len(shape) > MAX_RANK
        or max(shape, default=0) > MAX_ELEMENTS
        or math.prod(shape) > most
    ):
        raise UnsendableError(
            f"input {tensor.name!r} would have the shape {shown_shape(shape)}; a probe "
            f"sends at most {MAX_ELEMENTS} values, {MAX_BYTES} bytes and {MAX_RANK} "
            "dimensions: give a smaller shape"
        )
    return shape


def _element_bytes(datatype: str, choices: Array | None) -> int:
    if datatype != "BYTES":
        return array_dtype(datatype).itemsize
    longest = 0 if choices is None else max(map(len, choices))
    return max(_WORD_BYTES, longest)


def _fits(shape: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    return len(shape) == len(declared) and all(
        want in (-1, size) for size, want in zip(shape, declared, strict=True)
    )


def _float_ends(tensor: TensorSpec, settings: InputSettings) -> tuple[float, float]:
    low, high = settings.range or (0.0, 1.0)
    if max(abs(low), abs(high)) > LARGEST[tensor.datatype]:
        raise _misfit(tensor, "range")
    return float(low), float(high)


def _integer_ends(tensor: TensorSpec, settings: InputSettings) -> tuple[int, int]:
    """The whole numbers of the range that the datatype has."""
    low, high = settings.range or (0, 1)
    least, most = _limits(tensor.datatype)
    low, high = max(math.ceil(low), least), min(math.floor(high), most)
    if low > high:
        raise _misfit(tensor, "range")
    return low, high


def _limits(datatype: str) -> tuple[int, int]:
    if datatype == "BOOL":
        return 0, 1
    limits = np.iinfo(array_dtype(datatype).name)
    return int(limits.min), int(limits.max)


def _choices(tensor: TensorSpec, settings: InputSettings) -> Array | None:
    """The values to draw from; None where the settings list none."""
    values = settings.values if settings.files is None else _contents(tensor, settings)
    if values is None:
        return None
    choices = np.empty(len(values), dtype=array_dtype(tensor.datatype))
    for place, value in enumerate(values):
        if isinstance(value, bytes):
            choices[place] = value
        elif tensor.datatype == "BYTES":
            choices[place] = str(value).encode()
        elif _is_member(value, tensor.datatype):
            choices[place] = value
        else:
            raise _misfit(tensor, f"values[{place}]")
    return choices


def _contents(tensor: TensorSpec, settings: InputSettings) -> tuple[bytes, ...]:
    if tensor.datatype != "BYTES":
        raise _misfit(tensor, "file")
    try:
        return tuple(whole_file.read(p, MAX_BYTES) for p in settings.files or ())
    except (OSError, UnusableFileError) as error:
        raise UnsendableError(f"input {tensor.name!r}: {error}") from None


def _is_member(value: Scalar, datatype: str) -> bool:
    """Return whether the datatype has this value, floats up to their precision."""
    if isinstance(value, str):
        return False
    if datatype in FLOATS:
        return abs(value) <= LARGEST[datatype]
    least, most = _limits(datatype)
    return least <= value <= most and value == int(value)


def _misfit(tensor: TensorSpec, what: str) -> UnsendableError:
    # Not the value itself: it may come from a variable of the environment.
    return UnsendableError(
        f"the config gives input {tensor.name!r} a {what} that is not of its datatype "
        f"{tensor.datatype}"
    )


_ENOUGH_BITS: Final = 24.0
"""2^24 requests: none is met again while a server runs."""
_MOST_ROWS: Final = 32
_MOST_LENGTH: Final = 32
_MOST_VALUES: Final = 1024
"""Limit of all values of a wider request."""


def wider(
    spec: ModelSpec, overrides: Mapping[str, InputSettings]
) -> dict[str, InputSettings] | None:
    """Return settings with larger shapes; None where the model takes no others safely.

    All open dimensions get one length, since inputs often have to agree in it. A shape
    that the configuration gives stays, and so does every other.
    """
    inputs = chosen_inputs(spec, overrides)
    settings = {t.name: overrides.get(t.name, InputSettings()) for t in inputs}
    if spec.sequence or any(s.shape is not None for s in settings.values()):
        return None
    best: dict[str, tuple[int, ...]] | None = None
    most = _bits(
        _shapes(inputs, 1, 1, batched=spec.max_batch_size > 0), inputs, settings
    )
    for rows, length in _sizes(spec):
        shapes = _shapes(inputs, rows, length, batched=spec.max_batch_size > 0)
        bits = _bits(shapes, inputs, settings)
        if most >= _ENOUGH_BITS or sum(map(math.prod, shapes.values())) > _MOST_VALUES:
            break
        if bits > most:
            best, most = shapes, bits
    if best is None:
        return None
    return dict(overrides) | {
        name: settings[name].model_copy(update={"shape": shape})
        for name, shape in best.items()
    }


def _sizes(spec: ModelSpec) -> Iterator[tuple[int, int]]:
    """Rows and lengths, smallest first: rows are independent, lengths may matter."""
    rows = max(1, min(spec.max_batch_size, _MOST_ROWS))
    for count in range(2, rows + 1):
        yield count, 1
    for length in range(2, _MOST_LENGTH + 1):
        yield rows, length


def _shapes(
    inputs: Sequence[TensorSpec], rows: int, length: int, *, batched: bool
) -> dict[str, tuple[int, ...]]:
    return {
        tensor.name: tuple(
            size if size >= 0 else rows if batched and place == 0 else length
            for place, size in enumerate(tensor.shape)
        )
        for tensor in inputs
    }


def _bits(
    shapes: Mapping[str, tuple[int, ...]],
    inputs: Sequence[TensorSpec],
    settings: Mapping[str, InputSettings],
) -> float:
    """Return the binary logarithm of how many different requests there are."""
    return sum(
        _bits_each(tensor, settings[tensor.name]) * math.prod(shapes[tensor.name])
        for tensor in inputs
    )


def _bits_each(tensor: TensorSpec, settings: InputSettings) -> float:
    if listed := settings.values or settings.files:
        return math.log2(len(set(listed)))
    if tensor.datatype in FLOATS:
        low, high = settings.range or (0, 1)
        return _BITS_OF_FLOATS if high > low else 0.0
    if tensor.datatype == "BYTES":
        return _BITS_OF_WORDS
    low, high = settings.range or (0, 1)
    return math.log2(max(1, math.floor(high) - math.ceil(low) + 1))


_BITS_OF_FLOATS: Final = 10.0
"""FP16 and BF16 have about as many values between 0 and 1 that are likely to be drawn."""
_BITS_OF_WORDS: Final = math.log2(1_000_000)
