"""Triton's generate extension: requests as flat JSON, and answers streamed as events.

`/v2/models/M/generate_stream` takes single values and lists by the name of their input,
and sends each response as an event: a JSON object of its outputs, by name, with `NaN` and
`Infinity` as they are.
"""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any, Final

from exporter import errors
from exporter.triton.event_stream import EVENTS, EventStream, json_object
from exporter.triton.http import status_error
from exporter.triton.http_path import model_path
from exporter.triton.http_tensors import json_content
from exporter.triton.patience import sent_at
from exporter.triton.protocol_types import OutputTensor
from exporter.triton.streamed_reply import StreamedReply

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from exporter.triton.http import HttpClient
    from exporter.triton.protocol_types import (
        Array,
        InferReply,
        InferRequest,
        ModelSpec,
        TensorSpec,
    )

_OK: Final = 200
_CHUNK_BYTES: Final = 1 << 16
_ID: Final = "id"
_NAMES_OF_TRITON: Final = frozenset(
    {_ID, "parameters", "model_name", "model_version", "error"}
)
"""Fields of requests and responses that are no tensors."""
_NOT_IN_JSON: Final = frozenset({"FP16", "BF16"})
_EVENT: Final = b"data:"


def accepts(spec: ModelSpec, inputs: Iterable[TensorSpec]) -> bool:
    """Return whether the extension can carry these inputs, and the model's outputs.

    It sets no id of a sequence, which is not a parameter to Triton.
    """
    batch = 1 if spec.max_batch_size > 0 else 0
    inputs = tuple(inputs)
    return (
        not spec.sequence
        and all(len(tensor.shape) <= 1 + batch for tensor in inputs)
        and all(
            tensor.datatype not in _NOT_IN_JSON and tensor.name not in _NAMES_OF_TRITON
            for tensor in (*inputs, *spec.outputs)
        )
    )


def generate_body(
    inputs: Mapping[str, Array], fields: Mapping[str, object], *, is_batched: bool
) -> bytes:
    """Return the body of a request; `fields` are its id and parameters.

    Raises:
        UnsendableError: the extension cannot carry an input.
    """
    document: dict[str, Any] = dict(fields)
    try:
        for name, array in inputs.items():
            if name in fields:
                raise errors.UnsendableError(
                    f"found {name!r} as an input and as a parameter; the generate "
                    "extension has one place for both"
                )
            # A batch of one is added by the server.
            values = array[0] if is_batched and array.shape[0] == 1 else array
            if values.ndim > 1:
                raise errors.UnsendableError(
                    f"found {name!r} of shape {list(array.shape)}; the generate "
                    "extension accepts single values and lists"
                )
            plain = [
                item.decode() if isinstance(item, bytes) else item
                for item in values.ravel().tolist()
            ]
            document[name] = plain[0] if len(plain) == 1 else plain
        content = json.dumps(document, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError) as error:
        raise errors.UnsendableError(
            f"JSON cannot represent these inputs: {error}"
        ) from None
    return content.encode()


def infer_stream(
    http: HttpClient, request: InferRequest, spec: ModelSpec, *, timeout_seconds: float
) -> InferReply:
    """One request to a decoupled model; each event with outputs is a response.

    Raises:
        TritonError: as for every other call.
    """
    fields = {_ID: request.request_id, **request.parameters}
    body = generate_body(request.inputs, fields, is_batched=spec.max_batch_size > 0)
    path = f"{model_path(request.model, request.version)}/generate_stream"
    headers = {"Content-Type": "application/json", **request.headers}
    stream = EventStream()
    declared = {tensor.name: tensor for tensor in spec.outputs}
    with http.opened("POST", path, body, headers, timeout_seconds) as response:
        streamed = StreamedReply(sent_at(response))
        if response.status != _OK:
            raise _refused(response.status, response.read(_CHUNK_BYTES))
        found = response.headers.get("content-type", "")
        # An answer without any response has no content and no type of its own.
        while data := response.read1(_CHUNK_BYTES):
            if not found.startswith(EVENTS):
                raise errors.ProtocolError(f"the answer is {found!r}; want {EVENTS}")
            now = time.perf_counter()
            for outputs in _outputs_of(stream, data, declared):
                streamed.add(outputs, now)
        ended = time.perf_counter()
    if stream.held_bytes:
        raise errors.ProtocolError("the stream was cut off in the middle of an event")
    return streamed.ended(ended)


def _outputs_of(
    stream: EventStream, data: bytes, declared: Mapping[str, TensorSpec]
) -> list[tuple[OutputTensor, ...]]:
    """Return the outputs of each response that ends in this part of the stream."""
    responses = []
    try:
        for event in stream.feed(data):
            document = json_object(event)
            if "error" in document:
                raise errors.ModelError(str(document["error"]))
            outputs = tuple(
                _output(declared[name], value)
                for name, value in document.items()
                if name in declared
            )
            if outputs:
                responses.append(outputs)
    except (ValueError, TypeError, OverflowError) as error:
        raise errors.ProtocolError(f"an event of the stream: {error}") from None
    return responses


def _output(declared: TensorSpec, value: object) -> OutputTensor:
    values = value if isinstance(value, list) else [value]
    content = json_content(values, declared.datatype)
    shape = _shape(declared.shape, len(values))
    return OutputTensor(declared.name, declared.datatype, shape, content)


def _shape(declared: tuple[int, ...], values: int) -> tuple[int, ...]:
    """Return the declared shape, filled by so many values: JSON has them without one.

    The last open dimension takes what the others, of 1, leave.
    """
    fixed = math.prod(size for size in declared if size >= 0)
    last = max((i for i, size in enumerate(declared) if size < 0), default=-1)
    rest, over = divmod(values, fixed) if fixed else (0, values)
    if over or (last < 0 and rest != 1):
        return (values,)
    return tuple(
        size if size >= 0 else (rest if place == last else 1)
        for place, size in enumerate(declared)
    )


def _refused(status: int, body: bytes) -> errors.TritonError:
    # An error that the model answers first has the status of a request that is not valid.
    if body.startswith(_EVENT):
        text = body[len(_EVENT) :].decode("utf-8", "replace").strip()
        return errors.ModelError(f"HTTP {status}: {text}")
    return status_error(status, body)
