"""Bytes of HTTP/1.1 and of KServe-v2 over it: requests read, answers written."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from exporter.errors import ProtocolError
from exporter.triton.tensors import DATATYPES
from fake_triton.behaviours import INVALID_ARGUMENT, Status
from fake_triton.calls import REQUEST_BYTES
from fake_triton.inference import InferAnswer, InferRequest
from fake_triton.repository import RefusedError, refused
from fake_triton.wire_tensors import (
    NOT_IN_JSON,
    WireTensor,
    from_json,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

LINE_BYTES: Final = 65_536
HEADER_LENGTH: Final = "inference-header-content-length"
TOO_LARGE: Final = Status("RESOURCE_EXHAUSTED", 413, "the request is too large")
LENGTH_REQUIRED: Final = Status(
    "INVALID_ARGUMENT", 411, "a chunked request is not understood here"
)
BAD_REQUEST: Final = Status("INVALID_ARGUMENT", 400, "Bad Request")
JSON_ERROR: Final = Status("INTERNAL", 500, "")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request; header names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def closes(self) -> bool:
        """Whether the client wants the connection closed after the answer."""
        return self.headers.get("connection", "").lower() == "close"


def read_request(stream: BinaryIO) -> HttpRequest | None:
    """The next request, None at the end of the connection; RefusedError if unreadable."""
    line = stream.readline(LINE_BYTES + 1)
    if not line.strip():
        return None
    match line.decode("latin-1").split():
        case [method, target, protocol] if protocol.startswith("HTTP/1."):
            pass
        case _:
            raise RefusedError(BAD_REQUEST)
    try:
        parsed = http.client.parse_headers(stream)
    except http.client.HTTPException:
        raise RefusedError(BAD_REQUEST) from None
    headers = {name.lower(): value for name, value in parsed.items()}
    if "transfer-encoding" in headers:
        raise RefusedError(LENGTH_REQUIRED)
    length = headers.get("content-length", "0")
    if not length.isdecimal():
        raise RefusedError(BAD_REQUEST)
    if int(length) > REQUEST_BYTES:
        raise RefusedError(TOO_LARGE)
    body = stream.read(int(length))
    if len(body) < int(length):
        return None
    return HttpRequest(method, target, headers, body)


def parse_json(body: bytes) -> Any:
    """The body's JSON, {} for an empty body; RefusedError as Triton words it."""
    if not body:
        return {}
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise refused(
            JSON_ERROR, "failed to parse the request JSON buffer: Invalid value. at 0"
        ) from None


@dataclass(frozen=True, slots=True)
class ParsedInfer:
    """An infer request and how its outputs are to be written."""

    request: InferRequest
    binary_outputs: frozenset[str] = frozenset()
    all_binary: bool = False

    def is_binary(self, output: str) -> bool:
        """Whether this output goes out as raw bytes rather than JSON."""
        return self.all_binary or output in self.binary_outputs


def parse_infer(request: HttpRequest) -> ParsedInfer:
    """An infer request, JSON or with binary tensors behind it; RefusedError if wrong."""
    header_bytes = request.headers.get(HEADER_LENGTH, str(len(request.body)))
    if not header_bytes.isdecimal() or int(header_bytes) > len(request.body):
        raise refused(
            INVALID_ARGUMENT, "Invalid HTTP header Inference-Header-Content-Length"
        )
    split = int(header_bytes)
    document = parse_json(request.body[:split])
    try:
        return _parse_document(document, request.body[split:])
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as problem:
        raise refused(JSON_ERROR, f"Unable to parse 'inputs': {problem}") from None


def _parse_document(document: Any, binary: bytes) -> ParsedInfer:
    inputs: list[WireTensor] = []
    for item in document.get("inputs", ()):
        tensor, binary = _parse_tensor(item, binary)
        inputs.append(tensor)
    if binary:
        raise refused(
            INVALID_ARGUMENT, f"unexpected additional input data of {len(binary)} bytes"
        )
    wanted = document.get("outputs", ())
    parameters = document.get("parameters", {})
    default = parameters.get("binary_data_output") is True
    binary_outputs = frozenset(
        item["name"]
        for item in wanted
        if item.get("parameters", {}).get("binary_data", default) is True
    )
    infer = InferRequest(
        str(document.get("id", "")),
        tuple(inputs),
        tuple(item["name"] for item in wanted),
        dict(parameters),
    )
    return ParsedInfer(infer, binary_outputs, all_binary=default and not wanted)


def _parse_tensor(item: Any, binary: bytes) -> tuple[WireTensor, bytes]:
    name, dtype = str(item["name"]), str(item["datatype"])
    shape = tuple(int(size) for size in item["shape"])
    if dtype not in DATATYPES:
        raise refused(INVALID_ARGUMENT, f"invalid datatype for input '{name}'")
    size = item.get("parameters", {}).get("binary_data_size")
    if size is not None:
        if not 0 <= size <= len(binary):
            raise refused(INVALID_ARGUMENT, f"unexpected end of data for '{name}'")
        return WireTensor(name, dtype, shape, binary[:size]), binary[size:]
    if dtype in NOT_IN_JSON:
        raise refused(
            INVALID_ARGUMENT, f"sending {dtype} data via JSON is not supported"
        )
    try:
        return from_json(name, dtype, shape, item["data"]), binary
    except (ValueError, TypeError, OverflowError) as problem:
        raise refused(JSON_ERROR, f"Unable to parse 'data': {problem}") from None


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One answer, whole."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self) -> bytes:
        """Status line and headers, with the Content-Length of the whole body."""
        reason = http.client.responses.get(self.status, "Unknown")
        lines = [
            f"HTTP/1.1 {self.status} {reason}",
            f"Content-Type: {self.content_type}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
            f"Content-Length: {len(self.body)}",
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def json_answer(value: Any, status: int = 200) -> HttpAnswer:
    """A JSON answer, NaN and infinities bare, as Triton writes them."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return HttpAnswer(status, body.encode(errors="replace"))


def status_answer(status: Status) -> HttpAnswer:
    """A failure, with Triton's error body."""
    return json_answer({"error": status.message}, status.http)


def infer_answer(answer: InferAnswer, parsed: ParsedInfer) -> HttpAnswer:
    """An infer response: JSON, or JSON with binary tensors behind it."""
    binary = b""
    outputs: list[dict[str, Any]] = []
    for tensor in answer.outputs:
        member: dict[str, Any] = {
            "name": tensor.name,
            "datatype": tensor.dtype,
            "shape": list(tensor.shape),
        }
        if parsed.is_binary(tensor.name):
            member["parameters"] = {"binary_data_size": len(tensor.raw)}
            binary += tensor.raw
        else:
            member["data"] = _json_data(tensor)
        outputs.append(member)
    document: dict[str, Any] = {"id": answer.request_id} if answer.request_id else {}
    document |= {
        "model_name": answer.model,
        "model_version": answer.version,
        "outputs": outputs,
    }
    text = json_answer(document)
    if not any(parsed.is_binary(tensor.name) for tensor in answer.outputs):
        return text
    return HttpAnswer(
        200,
        text.body + binary,
        "application/octet-stream",
        {"Inference-Header-Content-Length": str(len(text.body))},
    )


def _json_data(tensor: WireTensor) -> list[Any]:
    if tensor.dtype in NOT_IN_JSON:
        raise refused(
            INVALID_ARGUMENT,
            f"sending {tensor.dtype} data via JSON is not supported. "
            f"Please use the binary data format for output '{tensor.name}'",
        )
    try:
        return to_json(tensor)
    except ProtocolError:
        raise refused(
            JSON_ERROR,
            f"output tensor shape does not match size of output for '{tensor.name}'",
        ) from None
