"""Arrays to bodies: once before the run, for gRPC or for HTTP.

Over HTTP tensors are binary where the server has that extension, as Triton does, and
JSON where it is a KServe-v2 server without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.errors import InvalidRequestError
from exporter.triton.generate import generate_body
from exporter.triton.http_tensors import HEADER_LENGTH, binary_request, json_request
from exporter.triton.kserve import infer_message
from exporter.triton.protocol_types import InferRequest, OutputTensor
from exporter.triton.tensors import decode, encode
from loadtests.errors import PlanError
from loadtests.plan import Body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.triton.protocol_types import Array, ModelSpec, TensorSpec
    from loadtests.target import Protocol

Parameter = bool | int | float | str
_ROUNDED: Final = {"BYTES", "BF16", "FP16", "FP32"}
"""Datatypes whose values may be given in another form than the server's."""


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
    request = InferRequest(
        spec.name,
        spec.version,
        "",
        row.inputs,
        {tensor.name: tensor.datatype for tensor in spec.inputs},
        _parameters(spec, row, protocol, binary=binary),
    )
    header_bytes = 0
    try:
        if protocol == "grpc":
            content = bytes(infer_message(request).SerializeToString())
        elif spec.decoupled:
            return Body(
                generate_body(
                    row.inputs, row.parameters, is_batched=spec.max_batch_size > 0
                )
            )
        elif binary:
            content, headers = binary_request(request)
            header_bytes = int(headers[HEADER_LENGTH])
        else:
            content = json_request(request)
            header_bytes = len(content)
    except InvalidRequestError as error:
        raise PlanError(f"{error}: use --protocol grpc", f"model {spec.name}") from None
    return Body(
        content,
        header_bytes=header_bytes,
        rows=_rows(spec, row),
        expected={
            tensor.name: _as_answered(tensor, row.expected[tensor.name])
            for tensor in spec.outputs
            if tensor.name in row.expected
        },
    )


def _as_answered(tensor: TensorSpec, given: Array) -> Array:
    """Return a correct answer as a server sends it: text as UTF-8, numbers rounded."""
    if tensor.datatype not in _ROUNDED:
        return given
    with np.errstate(over="ignore"):  # a number too large for the datatype is infinite
        raw = encode(given, tensor.datatype)
    return decode(OutputTensor(tensor.name, tensor.datatype, given.shape, raw))


def _rows(spec: ModelSpec, row: Row) -> int:
    if not spec.max_batch_size or not row.inputs:
        return 1
    return int(next(iter(row.inputs.values())).shape[0])


def _parameters(
    spec: ModelSpec, row: Row, protocol: Protocol, *, binary: bool
) -> dict[str, Parameter]:
    if protocol == "grpc" and spec.decoupled:
        # Without it a model that sends nothing more leaves the stream open without end.
        return {**row.parameters, "triton_enable_empty_final_response": True}
    if protocol != "grpc" and not binary:
        return {**row.parameters, "binary_data_output": False}
    return dict(row.parameters)
