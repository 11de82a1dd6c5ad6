"""KServe's gRPC messages for inference: encoding requests, decoding answers."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import DecodeError

from exporter import errors
from exporter.triton.kserve import service_pb2
from exporter.triton.protocol_types import InferRequest, OutputTensor
from exporter.triton.tensors import encode

# Its messages are made at run time; no type checker knows them.
pb: Final[Any] = service_pb2


def infer_message(request: InferRequest) -> Any:
    """A ModelInferRequest, its tensors as raw contents."""
    message = pb.ModelInferRequest(
        model_name=request.model, model_version=request.version, id=request.request_id
    )
    for name, array in request.inputs.items():
        datatype = request.datatypes[name]
        message.inputs.add(name=name, datatype=datatype, shape=array.shape)
        message.raw_input_contents.append(encode(array, datatype))
    for key, value in request.parameters.items():
        # bool before int: a Python bool is an int as well.
        if isinstance(value, bool):
            message.parameters[key].bool_param = value
        elif isinstance(value, int):
            message.parameters[key].int64_param = value
        elif isinstance(value, float):
            message.parameters[key].double_param = value
        else:
            message.parameters[key].string_param = value
    return message


def parsed(reply: bytes) -> Any:
    """The ModelInferResponse in an answer.

    Raises:
        ProtocolError: there is none.
    """
    try:
        return pb.ModelInferResponse.FromString(reply)
    except DecodeError as error:
        raise errors.ProtocolError(
            f"found an answer of {len(reply)} B that is not a ModelInferResponse: "
            f"{error}"
        ) from None


def outputs_of(reply: Any) -> tuple[OutputTensor, ...]:
    """The tensors of a ModelInferResponse, still encoded.

    Raises:
        ProtocolError: outputs and raw contents do not go together.
    """
    raw = list(reply.raw_output_contents)
    if len(raw) != len(reply.outputs):
        raise errors.ProtocolError(
            f"found {len(raw)} raw contents for {len(reply.outputs)} outputs"
        )
    return tuple(
        OutputTensor(tensor.name, tensor.datatype, tuple(tensor.shape), data)
        for tensor, data in zip(reply.outputs, raw, strict=True)
    )
