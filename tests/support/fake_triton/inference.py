"""One inference: is the request right, what is the answer, what is made wrong in it."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from exporter.errors import ProtocolError
from exporter.triton.tensors import FLOATS, array_dtype
from fake_triton.behaviours import (
    INVALID_ARGUMENT,
    EmptyTensor,
    Filled,
    MissingOutput,
    ShortTensor,
    TensorFault,
    WrongDtype,
    WrongShape,
)
from fake_triton.fake_models import wire_shape
from fake_triton.repository import refused
from fake_triton.wire_tensors import (
    WireTensor,
    decode,
    encode,
    plausible,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fake_triton.fake_models import FakeModel, FakeTensor


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A ModelInfer request, whichever port it came in by."""

    request_id: str
    inputs: tuple[WireTensor, ...]
    outputs: tuple[str, ...] = ()
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InferAnswer:
    """A ModelInfer response, whichever port it leaves by."""

    model: str
    version: str
    request_id: str
    outputs: tuple[WireTensor, ...]
    is_final: bool | None = None
    """None where the answer is no stream's."""


def check(model: FakeModel, request: InferRequest) -> None:
    """RefusedError in Triton's words if the request does not fit the model."""
    known = {tensor.name: tensor for tensor in model.inputs}
    for given in request.inputs:
        if given.name not in known:
            raise refused(
                INVALID_ARGUMENT,
                f"unexpected inference input '{given.name}' for model '{model.name}'",
            )
    for name in request.outputs:
        if name not in {tensor.name for tensor in model.outputs}:
            raise refused(
                INVALID_ARGUMENT,
                f"unexpected inference output '{name}' for model '{model.name}'",
            )
    prefix = f"[request id: {request.request_id or '<id_unknown>'}]"
    _check_presence(model, request, prefix)
    for given in request.inputs:
        _check_input(model, known[given.name], given, prefix)


def _check_presence(model: FakeModel, request: InferRequest, prefix: str) -> None:
    given = [tensor.name for tensor in request.inputs]
    missing = [tensor.name for tensor in model.inputs if tensor.name not in given]
    if missing or len(set(given)) != len(given):
        raise refused(
            INVALID_ARGUMENT,
            f"{prefix} expected {len(model.inputs)} inputs but "
            f"got {len(given)} inputs for model "
            f"'{model.name}'. Got input(s) {given}, but missing required input(s) "
            f"{missing}. Please provide all required input(s).",
        )


def _check_input(
    model: FakeModel, declared: FakeTensor, given: WireTensor, prefix: str
) -> None:
    if given.dtype != declared.dtype:
        raise refused(
            INVALID_ARGUMENT,
            f"{prefix} inference input '{given.name}' data-type is '{given.dtype}', "
            f"but model '{model.name}' expects '{declared.dtype}'",
        )
    expected = wire_shape(model, declared)
    if not _fits(given.shape, expected):
        raise refused(
            INVALID_ARGUMENT,
            f"{prefix} unexpected shape for input '{given.name}' for model "
            f"'{model.name}'. Expected {_shape(expected)}, got {_shape(given.shape)}",
        )
    if 0 < model.max_batch_size < given.shape[0]:
        raise refused(
            INVALID_ARGUMENT,
            f"{prefix} inference request batch-size must be <= "
            f"{model.max_batch_size} for '{model.name}'",
        )
    _check_size(model, given, prefix)


def _check_size(model: FakeModel, given: WireTensor, prefix: str) -> None:
    if given.dtype == "BYTES":
        try:
            decode(given)
        except ProtocolError as problem:
            raise refused(INVALID_ARGUMENT, f"{prefix} {problem}") from None
        return
    size = 2 if given.dtype == "BF16" else array_dtype(given.dtype).itemsize
    expected = size * math.prod(given.shape)
    if len(given.raw) != expected:
        raise refused(
            INVALID_ARGUMENT,
            f"{prefix} input byte size mismatch for input '{given.name}' for model "
            f"'{model.name}'. Expected {expected}, got {len(given.raw)}",
        )


def _fits(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    return len(shape) == len(expected) and all(
        have >= 0 and want in (-1, have)
        for have, want in zip(shape, expected, strict=True)
    )


def _shape(shape: Iterable[int]) -> str:
    return f"[{','.join(str(size) for size in shape)}]"


def rows(model: FakeModel, request: InferRequest) -> int:
    """Inferences in the request: its batch size, 1 without a batch axis."""
    if model.max_batch_size <= 0 or not request.inputs:
        return 1
    shape = request.inputs[0].shape
    return shape[0] if shape else 1


def answer(model: FakeModel, version: str, request: InferRequest) -> InferAnswer:
    """The well-behaved answer."""
    declared = [
        tensor
        for tensor in model.outputs
        if not request.outputs or tensor.name in request.outputs
    ]
    if model.answer is not None:
        values = model.answer({each.name: decode(each) for each in request.inputs})
        outputs = [_given(tensor, values[tensor.name]) for tensor in declared]
    else:
        seed = _seed(request)
        outputs = [_plausible(model, tensor, request, seed) for tensor in declared]
    return InferAnswer(model.name, version, request.request_id, tuple(outputs))


def stream(
    model: FakeModel, version: str, request: InferRequest
) -> Iterable[InferAnswer]:
    """The responses to a streamed request, and the empty last one where it is wanted."""
    good = answer(model, version, request)
    for _ in range(model.responses or 0):
        yield replace(good, is_final=False)
    if request.parameters.get("triton_enable_empty_final_response") is True:
        yield InferAnswer(model.name, "", request.request_id, (), is_final=True)


def _given(tensor: FakeTensor, values: np.ndarray[Any, Any]) -> WireTensor:
    raw = encode(tensor.dtype, values)
    return WireTensor(tensor.name, tensor.dtype, values.shape, raw)


def _plausible(
    model: FakeModel, tensor: FakeTensor, request: InferRequest, seed: int
) -> WireTensor:
    shape = _resolved(model, tensor, request)
    own_seed = zlib.crc32(tensor.name.encode(), seed)
    raw = encode(tensor.dtype, plausible(tensor.dtype, shape, own_seed))
    return WireTensor(tensor.name, tensor.dtype, shape, raw)


def _seed(request: InferRequest) -> int:
    seed = 0
    for tensor in sorted(request.inputs, key=lambda each: each.name):
        seed = zlib.crc32(tensor.name.encode(errors="replace") + tensor.raw, seed)
    return seed


def _resolved(
    model: FakeModel, tensor: FakeTensor, request: InferRequest
) -> tuple[int, ...]:
    """Each -1 takes the size the first input has on that axis, 1 where it has none."""
    shape = wire_shape(model, tensor)
    like = request.inputs[0].shape if request.inputs else ()
    return tuple(
        size if size >= 0 else (like[axis] if axis < len(like) else 1)
        for axis, size in enumerate(shape)
    )


def spoilt(good: InferAnswer, faults: Iterable[TensorFault]) -> InferAnswer:
    """The answer with every fault applied in turn."""
    for fault in faults:
        good = replace(good, outputs=tuple(_spoilt_outputs(good.outputs, fault)))
    return good


def _spoilt_outputs(
    outputs: tuple[WireTensor, ...], fault: TensorFault
) -> Iterable[WireTensor]:
    only = fault.output if isinstance(fault, EmptyTensor | MissingOutput) else None
    for tensor in outputs:
        if only not in (None, tensor.name):
            yield tensor
        elif not isinstance(fault, MissingOutput):
            yield _spoilt_tensor(tensor, fault)


def _spoilt_tensor(tensor: WireTensor, fault: TensorFault) -> WireTensor:
    match fault:
        case EmptyTensor():
            return replace(tensor, raw=b"")
        case ShortTensor():
            return replace(tensor, raw=tensor.raw[:-1])
        case WrongDtype():
            values = decode(tensor).astype(np.int64)
            return replace(tensor, dtype="INT64", raw=encode("INT64", values))
        case WrongShape():
            *others, last = tensor.shape or (0,)
            shape = (*others, last + 1)
            values = np.resize(decode(tensor), shape)
            return replace(tensor, shape=shape, raw=encode(tensor.dtype, values))
        case Filled(value=value):
            return _filled(tensor, value)
        case MissingOutput():
            raise AssertionError("a missing output has no tensor")


def _filled(tensor: WireTensor, value: float) -> WireTensor:
    holds_value = tensor.dtype in FLOATS or math.isfinite(value)
    if not holds_value or tensor.dtype == "BYTES":
        return tensor
    values = np.full_like(decode(tensor), value)
    return replace(tensor, raw=encode(tensor.dtype, values))
