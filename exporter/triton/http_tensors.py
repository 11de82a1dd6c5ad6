"""Inference requests and answers as HTTP bodies: binary tensors, or all of it JSON.

Binary tensors are an extension of Triton's. Other servers of the protocol take and give
JSON, in which BYTES are UTF-8.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from exporter import errors
from exporter.triton.protocol_types import OutputTensor
from exporter.triton.tensors import array_dtype, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporter.triton.protocol_types import Array, InferRequest

BINARY_EXTENSION: Final = "binary_tensor_data"
HEADER_LENGTH: Final = "Inference-Header-Content-Length"


def binary_request(request: InferRequest) -> tuple[bytes, dict[str, str]]:
    """The body with its tensors as bytes behind the JSON, and its headers."""
    inputs: list[dict[str, Any]] = []
    contents: list[bytes] = []
    for name, array in request.inputs.items():
        datatype = request.datatypes[name]
        content = encode(array, datatype)
        contents.append(content)
        inputs.append(
            {
                "name": name,
                "datatype": datatype,
                "shape": list(array.shape),
                "parameters": {"binary_data_size": len(content)},
            }
        )
    header = _document(
        request, inputs, {**request.parameters, "binary_data_output": True}
    )
    return b"".join((header, *contents)), {
        "Content-Type": "application/octet-stream",
        HEADER_LENGTH: str(len(header)),
    }


def json_request(request: InferRequest) -> bytes:
    """The body as JSON alone.

    Raises:
        UnsendableError: BYTES that are no text, or a number that JSON does not have.
    """
    try:
        inputs = [
            {
                "name": name,
                "datatype": request.datatypes[name],
                "shape": list(array.shape),
                "data": [
                    item.decode() if isinstance(item, bytes) else item
                    for item in array.ravel().tolist()
                ],
            }
            for name, array in request.inputs.items()
        ]
        return _document(request, inputs, request.parameters)
    except ValueError as error:
        raise errors.UnsendableError(
            f"this server accepts JSON only, which cannot represent these: {error}"
        ) from None


def _document(
    request: InferRequest,
    inputs: list[dict[str, Any]],
    parameters: Mapping[str, object],
) -> bytes:
    """Return the JSON of a request, its parameters last, as load tests extend them."""
    known = {"id": request.request_id} if request.request_id else {}
    return json.dumps(
        {**known, "inputs": inputs, "parameters": dict(parameters)},
        separators=(",", ":"),
        allow_nan=False,
        ensure_ascii=False,
    ).encode()


def decode_binary_reply(
    headers: Mapping[str, str], body: bytes
) -> tuple[OutputTensor, ...]:
    """The outputs of an answer whose tensors stand behind its JSON.

    Raises:
        ProtocolError: it is no such answer.
    """
    outputs = []
    with _refused():
        length = int(headers.get(HEADER_LENGTH, len(body)))
        document = json.loads(body[:length])
        position = length
        for entry in document.get("outputs", ()):
            size = int(entry["parameters"]["binary_data_size"])
            outputs.append(_output(entry, body[position : position + size]))
            position += size
    if position != len(body):
        raise errors.ProtocolError(
            f"the answer has {len(body)} bytes; the tensors end at {position}"
        )
    return tuple(outputs)


def decode_json_reply(body: bytes) -> tuple[OutputTensor, ...]:
    """The outputs of an answer in JSON alone.

    Raises:
        ProtocolError: it is no such answer.
    """
    with _refused():
        return tuple(
            _output(entry, json_content(_data(entry), str(entry["datatype"])))
            for entry in json.loads(body).get("outputs", ())
        )


def _data(entry: dict[str, Any]) -> Any:
    # Where all tensors behind the JSON are empty, Triton does not state its length.
    is_empty = entry.get("parameters") == {"binary_data_size": 0}
    return [] if is_empty else entry["data"]


def _output(entry: dict[str, Any], data: bytes) -> OutputTensor:
    shape = tuple(int(dim) for dim in entry["shape"])
    return OutputTensor(str(entry["name"]), str(entry["datatype"]), shape, data)


def json_content(data: Any, datatype: str) -> bytes:
    """Values, nested or flat, as the raw content of a tensor."""
    if not isinstance(data, list):
        raise TypeError(f"data is a {type(data).__name__}")
    array: Array = np.array(data, dtype=array_dtype(datatype)).ravel()
    if datatype == "BYTES":
        if not all(isinstance(item, str) for item in array):
            raise TypeError("a BYTES tensor contains a value that is not text")
        array[:] = [item.encode("utf-8", "surrogateescape") for item in array]
    return encode(array, datatype)


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise errors.ProtocolError(
            f"the answer is not an inference response: {type(error).__name__}: {error}"
        ) from None
