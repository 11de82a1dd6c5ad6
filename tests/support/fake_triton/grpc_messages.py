"""Protobuf messages of KServe-v2 to and from the fake's own records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporter.triton.kserve import service_pb2
from exporter.triton.tensors import DATATYPES
from fake_triton.behaviours import INVALID_ARGUMENT
from fake_triton.inference import InferAnswer, InferRequest
from fake_triton.repository import refused
from fake_triton.wire_tensors import WireTensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

pb: Final[Any] = service_pb2
"""The protocol's messages; protobuf makes them at import, where no checker sees them."""


def infer_request(message: Any) -> InferRequest:
    """A ModelInferRequest with raw contents; RefusedError if it has none."""
    raw = list(message.raw_input_contents)
    if len(raw) != len(message.inputs):
        raise refused(
            INVALID_ARGUMENT,
            f"expected {len(message.inputs)} raw inputs but got {len(raw)}",
        )
    tensors = tuple(map(_tensor, message.inputs, raw))
    return InferRequest(
        message.id,
        tensors,
        tuple(each.name for each in message.outputs),
        {key: _parameter(value) for key, value in message.parameters.items()},
    )


def _tensor(message: Any, raw: bytes) -> WireTensor:
    if message.datatype not in DATATYPES:
        raise refused(INVALID_ARGUMENT, f"invalid datatype for input '{message.name}'")
    return WireTensor(message.name, message.datatype, tuple(message.shape), raw)


def _parameter(message: Any) -> object:
    chosen = message.WhichOneof("parameter_choice")
    value: object = getattr(message, chosen) if chosen else None
    return value


def infer_response(answer: InferAnswer) -> Any:
    """A ModelInferResponse with raw contents."""
    message = pb.ModelInferResponse(
        model_name=answer.model, model_version=answer.version, id=answer.request_id
    )
    for tensor in answer.outputs:
        message.outputs.add(
            name=tensor.name, datatype=tensor.dtype, shape=list(tensor.shape)
        )
        message.raw_output_contents.append(tensor.raw)
    if answer.is_final is not None:
        message.parameters["triton_final_response"].bool_param = answer.is_final
    return message


def settings_response(settings: Mapping[str, Sequence[str]]) -> Any:
    """A TraceSettingResponse."""
    message = pb.TraceSettingResponse()
    for key, values in settings.items():
        message.settings[key].value.extend(values)
    return message
