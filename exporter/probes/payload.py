"""Input tensors made from a model's own signature and what the config says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import Field, model_validator

from exporter.errors import InvalidRequestError
from exporter.settings import Settings
from exporter.triton.model import ModelSpec, TensorSpec
from exporter.triton.tensors import FLOATS, array_dtype

if TYPE_CHECKING:
    from exporter.triton.model import Array

MAX_ELEMENTS: Final = 16 * 1024 * 1024
Scalar = bool | int | float | str


class InputSettings(Settings):
    """How one input tensor is made; what is left out comes from the model's metadata."""

    shape: tuple[int, ...] | None = Field(default=None, max_length=16)
    """Sizes in place of the declared ones, batch dimension included; no -1."""
    range: tuple[float, float] | None = Field(default=None)
    """Values are drawn evenly from here; integers include both ends."""
    values: tuple[Scalar, ...] | None = Field(default=None, min_length=1)
    """Values are drawn from these."""
    omit: bool = Field(default=False)
    """Leave an optional input out."""

    @model_validator(mode="after")
    def _consistent(self) -> InputSettings:
        if self.range is not None and self.values is not None:
            raise ValueError("found both range and values; give one")
        if self.range is not None and self.range[0] > self.range[1]:
            raise ValueError(
                f"found range {list(self.range)}; the lower end comes first"
            )
        if self.shape is not None and any(size < 0 for size in self.shape):
            raise ValueError(f"found shape {list(self.shape)}; sizes are 0 or more")
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
    """One request's inputs, drawn anew so that a response cache does not answer.

    Open dimensions become 1. Floats come evenly from [0, 1), integers from {0, 1},
    which index any vocabulary; BYTES are short words. Optional inputs are left out
    unless the config names them.

    Raises:
        InvalidRequestError: the config does not fit the model's signature.
    """
    known = {tensor.name for tensor in spec.inputs}
    unknown = sorted(overrides.keys() - known)
    if unknown:
        raise InvalidRequestError(
            f"the config names inputs {unknown}; {spec.name} has {sorted(known)}"
        )
    payload = Payload({}, {})
    for tensor in spec.inputs:
        override = overrides.get(tensor.name)
        if override.omit if override else tensor.optional:
            continue
        payload.inputs[tensor.name] = _array(tensor, override or InputSettings(), rng)
        payload.datatypes[tensor.name] = tensor.datatype
    return payload


def _array(
    tensor: TensorSpec, settings: InputSettings, rng: np.random.Generator
) -> Array:
    shape = _shape(tensor, settings)
    if settings.values is not None:
        return _chosen(tensor, settings.values, shape, rng)
    if tensor.datatype == "BYTES":
        words = np.empty(shape, dtype=np.object_)
        words[...] = np.frompyfunc(lambda n: b"probe-%d" % n, 1, 1)(
            rng.integers(0, 1_000_000, size=shape)
        )
        return words
    if tensor.datatype == "BOOL":
        return rng.integers(0, 2, size=shape).astype(np.bool_)
    dtype = array_dtype(tensor.datatype)
    if tensor.datatype in FLOATS:
        low, high = settings.range or (0.0, 1.0)
        return rng.uniform(low, high, size=shape).astype(dtype)
    limits = np.iinfo(dtype.name)
    low, high = settings.range or (0, 1)
    return rng.integers(
        max(int(low), int(limits.min)),
        min(int(high), int(limits.max)),
        size=shape,
        endpoint=True,
        dtype=dtype.type,
    )


def _shape(tensor: TensorSpec, settings: InputSettings) -> tuple[int, ...]:
    if settings.shape is None:
        shape = tuple(1 if size < 0 else size for size in tensor.shape)
    else:
        shape = settings.shape
        if not _fits(shape, tensor.shape):
            raise InvalidRequestError(
                f"the config gives input {tensor.name!r} the shape {list(shape)}; "
                f"the model takes {list(tensor.shape)}"
            )
    elements = int(np.prod(shape, dtype=np.float64))
    if elements > MAX_ELEMENTS:
        raise InvalidRequestError(
            f"input {tensor.name!r} would have {elements} elements; a probe sends at "
            f"most {MAX_ELEMENTS}: give a smaller shape"
        )
    return shape


def _fits(shape: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    return len(shape) == len(declared) and all(
        want in (-1, size) for size, want in zip(shape, declared, strict=True)
    )


def _chosen(
    tensor: TensorSpec,
    values: tuple[Scalar, ...],
    shape: tuple[int, ...],
    rng: np.random.Generator,
) -> Array:
    if tensor.datatype == "BYTES":
        choices = np.empty(len(values), dtype=np.object_)
        choices[:] = [str(value).encode() for value in values]
        return choices[rng.integers(0, len(values), size=shape)]
    try:
        choices = np.array(values).astype(
            array_dtype(tensor.datatype), casting="unsafe"
        )
        exact = bool(np.all(choices == np.array(values)))
    except (ValueError, OverflowError):
        exact = False
    if not exact and tensor.datatype not in FLOATS:
        raise InvalidRequestError(
            f"the config gives input {tensor.name!r} values {list(values)}; "
            f"they are no {tensor.datatype}"
        )
    return choices[rng.integers(0, len(values), size=shape)]
