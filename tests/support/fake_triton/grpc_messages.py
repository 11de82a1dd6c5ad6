"""Protobuf messages of KServe-v2 to and from the fake's own records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from exporter.triton.kserve import service_pb2
from fake_triton.behaviours import INVALID_ARGUMENT
from fake_triton.inference import InferAnswer, InferRequest
from fake_triton.repository import refused
from fake_triton.tensors import NUMPY_TYPES, WireTensor, encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

pb: Final[Any] = service_pb2
"""The protocol's messages; protobuf makes them at import, where no checker sees them."""

_CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def infer_request(message: Any) -> InferRequest:
    """A ModelInferRequest, raw or typed contents; RefusedError if it holds no data."""
    raw = list(message.raw_input_contents)
    if raw and len(raw) != len(message.inputs):
        raise refused(
            INVALID_ARGUMENT,
            f"expected {len(message.inputs)} raw inputs but got {len(raw)}",
        )
    tensors = tuple(
        _tensor(each, raw[place] if raw else None)
        for place, each in enumerate(message.inputs)
    )
    return InferRequest(
        message.id,
        tensors,
        tuple(each.name for each in message.outputs),
        {key: _parameter(value) for key, value in message.parameters.items()},
    )


def _tensor(message: Any, raw: bytes | None) -> WireTensor:
    if message.datatype not in NUMPY_TYPES:
        raise refused(INVALID_ARGUMENT, f"invalid datatype for input '{message.name}'")
    if raw is None:
        raw = _typed_contents(message)
    return WireTensor(message.name, message.datatype, tuple(message.shape), raw)


def _typed_contents(message: Any) -> bytes:
    member = _CONTENTS.get(message.datatype)
    if member is None:
        raise refused(
            INVALID_ARGUMENT,
            f"{message.datatype} of input '{message.name}' has to be sent raw",
        )
    items = list(getattr(message.contents, member))
    values = np.empty(len(items), dtype=NUMPY_TYPES[message.datatype])
    values[:] = items
    return encode(message.datatype, values)


def _parameter(message: Any) -> object:
    chosen = message.WhichOneof("parameter_choice")
    value: object = getattr(message, chosen) if chosen else None
    return value


def infer_response(answer: InferAnswer) -> Any:
    """A ModelInferResponse with raw contents."""
    message = pb.ModelInferResponse(
        model_name=answer.model, model_version=answer.version, id=answer.request_id
    )
    for key, value in answer.parameters.items():
        message.parameters[key].bool_param = value
    for tensor in answer.outputs:
        message.outputs.add(
            name=tensor.name, datatype=tensor.dtype, shape=list(tensor.shape)
        )
        message.raw_output_contents.append(tensor.raw)
    return message


def settings_of(message: Any) -> dict[str, list[str] | None] | None:
    """The changes in a TraceSettingRequest, None when it only asks."""
    changes = {
        key: list(value.value) or None for key, value in message.settings.items()
    }
    return changes or None


def settings_response(settings: Mapping[str, Sequence[str]]) -> Any:
    """A TraceSettingResponse."""
    message = pb.TraceSettingResponse()
    for key, values in settings.items():
        message.settings[key].value.extend(values)
    return message
