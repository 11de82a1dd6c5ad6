"""Arrays to bodies: once before the run, for gRPC or for HTTP.

Over HTTP tensors are binary where the server has that extension, as Triton does, and
JSON where it is a KServe-v2 server without it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from exporter.errors import InvalidRequestError
from exporter.triton.generate import generate_body
from exporter.triton.kserve import service_pb2
from exporter.triton.tensors import encode
from loadtests.errors import PlanError
from loadtests.mix import Body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.triton.protocol_types import Array, ModelSpec
    from loadtests.target import Protocol

pb: Final[Any] = service_pb2
Parameter = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Row:
    """Content of one request, and the correct answer where it is known."""

    inputs: Mapping[str, Array]
    expected: Mapping[str, Array] = field(default_factory=dict)
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


def body_of(
    spec: ModelSpec,
    row: Row,
    protocol: Protocol,
    *,
    binary: bool = True,
) -> Body:
    """Return the body of one request.

    Without `binary`, HTTP bodies hold tensors as JSON.

    Raises:
        PlanError: JSON cannot hold a value, or the generate extension an input.
    """
    datatypes = {tensor.name: tensor.datatype for tensor in spec.inputs}
    if protocol == "grpc":
        return _grpc(spec, row, datatypes)
    if spec.decoupled:
        return _generate(spec, row)
    if binary:
        return _http(spec, row, datatypes)
    return _json(spec, row, datatypes)


def _rows(spec: ModelSpec, row: Row) -> int:
    if not spec.max_batch_size or not row.inputs:
        return 1
    return int(next(iter(row.inputs.values())).shape[0])


def _grpc(spec: ModelSpec, row: Row, datatypes: Mapping[str, str]) -> Body:
    message = pb.ModelInferRequest(model_name=spec.name, model_version=spec.version)
    for name, array in row.inputs.items():
        message.inputs.add(name=name, datatype=datatypes[name], shape=array.shape)
        message.raw_input_contents.append(encode(array, datatypes[name]))
    for key, value in _parameters(spec, row).items():
        parameter = message.parameters[key]
        if isinstance(value, bool):  # before int: a Python bool is one as well
            parameter.bool_param = value
        elif isinstance(value, int):
            parameter.int64_param = value
        elif isinstance(value, float):
            parameter.double_param = value
        else:
            parameter.string_param = value
    return Body(
        bytes(message.SerializeToString()),
        rows=_rows(spec, row),
        expected=row.expected,
    )


def _parameters(spec: ModelSpec, row: Row) -> dict[str, Parameter]:
    if not spec.decoupled:
        return dict(row.parameters)
    # Without it a model that sends nothing more leaves the stream open without end.
    return {**row.parameters, "triton_enable_empty_final_response": True}


def _http(spec: ModelSpec, row: Row, datatypes: Mapping[str, str]) -> Body:
    inputs: list[dict[str, Any]] = []
    contents: list[bytes] = []
    for name, array in row.inputs.items():
        contents.append(encode(array, datatypes[name]))
        inputs.append(
            {
                "name": name,
                "datatype": datatypes[name],
                "shape": list(array.shape),
                "parameters": {"binary_data_size": len(contents[-1])},
            }
        )
    # The parameters come last: those of a sequence are put at their end.
    document = {
        "inputs": inputs,
        "parameters": {**row.parameters, "binary_data_output": True},
    }
    header = json.dumps(document, separators=(",", ":")).encode()
    return Body(
        b"".join((header, *contents)),
        header_bytes=len(header),
        rows=_rows(spec, row),
        expected=row.expected,
    )


def _json(spec: ModelSpec, row: Row, datatypes: Mapping[str, str]) -> Body:
    """Return a body that is JSON only, as in KServe's protocol without extensions."""
    try:
        inputs = [
            {
                "name": name,
                "datatype": datatypes[name],
                "shape": list(array.shape),
                "data": [_plain(value) for value in array.ravel().tolist()],
            }
            for name, array in row.inputs.items()
        ]
        document = {
            "inputs": inputs,
            "parameters": {**row.parameters, "binary_data_output": False},
        }
        content = json.dumps(
            document, separators=(",", ":"), allow_nan=False, ensure_ascii=False
        ).encode()
    except ValueError as error:
        raise PlanError(
            "the server does not accept binary tensors over HTTP, and JSON cannot "
            f"represent these: {error}; use --protocol grpc",
            f"model {spec.name}",
        ) from None
    return Body(
        content,
        header_bytes=len(content),
        rows=_rows(spec, row),
        expected=row.expected,
    )


def _generate(spec: ModelSpec, row: Row) -> Body:
    """Return a body of Triton's generate extension: inputs and parameters by name."""
    try:
        return Body(
            generate_body(
                row.inputs, row.parameters, is_batched=spec.max_batch_size > 0
            )
        )
    except InvalidRequestError as error:
        raise PlanError(f"{error}: use --protocol grpc", f"model {spec.name}") from None


def _plain(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value
