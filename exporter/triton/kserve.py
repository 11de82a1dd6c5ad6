"""KServe's gRPC messages and stubs, out of tritonclient, and our records to and from them.

`import tritonclient.grpc` brings both clients, rapidjson and protobuf's JSON format:
3 MB of the sidecar for nothing. So its generated modules are imported with the package's
own code left out; whoever imports the package later gets it whole, with these in it.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from types import ModuleType
from typing import Any, Final

from google.protobuf.message import DecodeError

from exporter import errors
from exporter.network import grpc_core  # noqa: F401 - the stubs import grpc themselves
from exporter.triton.protocol_types import (
    BatchStatistics,
    Duration,
    InferRequest,
    ModelStatistics,
    OutputTensor,
    TensorSpec,
)
from exporter.triton.tensors import encode

_PACKAGE: Final = "tritonclient.grpc"


def _generated(*names: str) -> list[ModuleType]:
    if _PACKAGE in sys.modules:
        return [importlib.import_module(f"{_PACKAGE}.{name}") for name in names]
    parent = importlib.import_module(_PACKAGE.partition(".")[0])
    empty = ModuleType(_PACKAGE)
    empty.__path__ = [f"{folder}/grpc" for folder in parent.__path__]
    sys.modules[_PACKAGE] = empty
    try:
        return [importlib.import_module(f"{_PACKAGE}.{name}") for name in names]
    finally:
        del sys.modules[_PACKAGE]


# Made at run time; no type checker knows them.
service_pb2: Any
service_pb2_grpc: Any
service_pb2, service_pb2_grpc = _generated("service_pb2", "service_pb2_grpc")

pb = service_pb2


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


def bounded(what: str, entries: Any, most: int) -> Any:
    """Return the entries.

    Raises:
        ProtocolError: there are more than `most`.
    """
    if len(entries) > most:
        raise errors.ProtocolError(
            f"found {len(entries)} {what}; the maximum is {most}"
        )
    return entries


def tensor_spec(tensor: Any, optional: frozenset[str] | set[str]) -> TensorSpec:
    """Return a tensor of the metadata; `optional` are the names of those that are."""
    return TensorSpec(
        tensor.name, tensor.datatype, tuple(tensor.shape), tensor.name in optional
    )


def gpus_of(config: Any) -> tuple[int, ...] | None:
    """Return the CUDA numbers of the GPUs that a model's configuration names.

    None if the backend decides. TensorRT-LLM's backend places its engine by a parameter
    of its own: its instance groups have KIND_CPU.
    """
    if config.backend == "tensorrtllm":
        numbers = config.parameters["gpu_device_ids"].string_value.split(",")
        named = {int(n) for n in numbers if re.fullmatch(r" *[0-9]{1,4} *", n)}
        return tuple(sorted(named)) or None
    groups = config.instance_group
    kinds = {group.Kind.Name(group.kind) for group in groups}
    if not kinds or kinds - {"KIND_GPU", "KIND_CPU"}:
        return None
    on_gpus = [group for group in groups if group.gpus]
    if "KIND_GPU" in kinds and not on_gpus:
        return None
    return tuple(sorted({gpu for group in on_gpus for gpu in group.gpus}))


def _duration(message: Any) -> Duration:
    return Duration(message.count, message.ns)


def model_statistics(entry: Any) -> ModelStatistics:
    """Return the statistics of a model version."""
    stats = entry.inference_stats
    return ModelStatistics(
        name=entry.name,
        version=entry.version,
        inference_count=entry.inference_count,
        execution_count=entry.execution_count,
        success=_duration(stats.success),
        fail=_duration(stats.fail),
        queue=_duration(stats.queue),
        compute_input=_duration(stats.compute_input),
        compute_infer=_duration(stats.compute_infer),
        compute_output=_duration(stats.compute_output),
        cache_hit=_duration(stats.cache_hit),
        cache_miss=_duration(stats.cache_miss),
        batches=tuple(
            BatchStatistics(
                batch.batch_size,
                _duration(batch.compute_input),
                _duration(batch.compute_infer),
                _duration(batch.compute_output),
            )
            for batch in entry.batch_stats
        ),
        memory_bytes=sum(usage.byte_size for usage in entry.memory_usage),
    )
