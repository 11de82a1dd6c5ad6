"""Checks that a successful answer is valid."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from exporter.errors import ProtocolError
from exporter.triton.tensors import FLOATS, decode, shown_shape

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from exporter.triton.protocol_types import (
        Array,
        InferReply,
        ModelSpec,
        OutputTensor,
        TensorSpec,
    )

Check = Literal["nan", "inf", "all_zero", "constant"]
_SHOWN: Final = 20


def reply_fault(
    spec: ModelSpec, reply: InferReply, checks: frozenset[Check]
) -> str | None:
    """Return the fault in the answer of a successful request, or None.

    Of a stream each response that was kept is checked. A response need not have every
    output: a backend may leave out outputs that were not requested, and send a summary
    with the last response.
    """
    if not reply.streamed:
        return output_fault(spec, reply.outputs, checks)
    for number, outputs in enumerate(reply.streamed, start=1):
        names = {output.name for output in outputs}
        present = replace(
            spec, outputs=tuple(t for t in spec.outputs if t.name in names)
        )
        fault = output_fault(present if present.outputs else spec, outputs, checks)
        if fault:
            return f"response {number} of {reply.responses}: {fault}"
    return None


def output_fault(
    spec: ModelSpec,
    outputs: Sequence[OutputTensor],
    checks: frozenset[Check],
    *,
    known: Container[str] = (),
) -> str | None:
    """Return the fault in the outputs of a successful request, or None.

    Always wrong: a declared output that is missing, another dtype or shape than
    declared, content that does not fill the shape. NaN, Inf, all zeros and all equal
    are wrong where `checks` names them, except in outputs whose values are `known`.
    """
    by_name = {output.name: output for output in outputs}
    for declared in spec.outputs:
        output = by_name.get(declared.name)
        if output is None:
            return (
                f"output {declared.name!r} is missing; found {sorted(by_name)[:_SHOWN]}"
            )
        fault = _shape_fault(declared, output)
        if fault:
            return fault
        try:
            array = decode(output)
        except ProtocolError as error:
            return str(error)
        fault = None if output.name in known else _value_fault(output, array, checks)
        if fault:
            return fault
    return None


def _shape_fault(declared: TensorSpec, output: OutputTensor) -> str | None:
    if output.datatype != declared.datatype:
        return (
            f"output {output.name!r} is {output.datatype}; "
            f"the model declares {declared.datatype}"
        )
    fits = len(output.shape) == len(declared.shape) and all(
        want in (-1, size)
        for size, want in zip(output.shape, declared.shape, strict=True)
    )
    if not fits:
        return (
            f"output {output.name!r} has shape {shown_shape(output.shape)}; "
            f"the model declares {shown_shape(declared.shape)}"
        )
    return None


def _value_fault(
    output: OutputTensor, array: Array, checks: frozenset[Check]
) -> str | None:
    if output.datatype in FLOATS:
        if "nan" in checks and np.isnan(array).any():
            return f"output {output.name!r} holds {int(np.isnan(array).sum())} NaN"
        if "inf" in checks and np.isinf(array).any():
            return f"output {output.name!r} holds {int(np.isinf(array).sum())} Inf"
    if output.datatype == "BYTES" or array.size == 0:
        return None
    if "all_zero" in checks and not array.any():
        return f"output {output.name!r} is all zeros ({array.size} values)"
    if "constant" in checks and array.size > 1 and (array == array.flat[0]).all():
        return f"output {output.name!r} is constant ({array.size} equal values)"
    return None


def joined_outputs(spec: ModelSpec, reply: InferReply) -> dict[str, Array]:
    """Return each output of a stream as one array; responses without it add nothing.

    Text is joined value by value, as a client that shows it does. All else is concatenated
    along the first axis, or the second where the first is the batch.

    Raises:
        ProtocolError: responses were not kept, or their shapes do not fit together.
    """
    if reply.is_cut:
        raise ProtocolError(
            f"the answer cannot be compared: it has {reply.responses} responses, and "
            f"the first {len(reply.streamed)} already fill the memory kept for a "
            "stream"
        )
    parts: dict[str, list[Array]] = defaultdict(list)
    for outputs in reply.streamed:
        for output in outputs:
            parts[output.name].append(decode(output))
    axis = 1 if spec.max_batch_size > 0 else 0
    return {name: _joined(name, arrays, axis) for name, arrays in parts.items()}


def _joined(name: str, arrays: Sequence[Array], axis: int) -> Array:
    first, is_text = arrays[0], arrays[0].dtype == np.object_
    for array in arrays:
        alike = array.dtype == first.dtype and array.ndim == first.ndim
        if alike and is_text:
            alike = array.shape == first.shape
        elif alike:
            # A response may have more or fewer values than another along this axis only.
            alike = first.ndim > axis and _others(array, axis) == _others(first, axis)
        if not alike:
            raise ProtocolError(
                f"output {name!r} has the shape {shown_shape(first.shape)} in one "
                f"response and {shown_shape(array.shape)} in another; they cannot be "
                "joined"
            )
    if not is_text:
        return np.concatenate(arrays, axis=axis)
    whole = np.empty(first.shape, np.object_)
    values = zip(*(array.ravel().tolist() for array in arrays), strict=True)
    whole.ravel()[:] = [b"".join(of_one) for of_one in values]
    return whole


def _others(array: Array, axis: int) -> tuple[int, ...]:
    return array.shape[:axis] + array.shape[axis + 1 :]
