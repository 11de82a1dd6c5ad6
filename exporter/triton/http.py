"""Triton over HTTP: inference with binary tensors, readiness and the metrics page."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as UrllibTimeoutError

from exporter import errors
from exporter.triton.model import InferReply, InferRequest, OutputTensor
from exporter.triton.patience import MAX_BODY_BYTES, pool_of
from exporter.triton.tensors import encode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

_CHUNK_BYTES: Final = 1 << 16
_HEADER_LENGTH: Final = "Inference-Header-Content-Length"


class HttpClient:
    """One Triton server over HTTP. Thread-safe; every call has a total deadline."""

    protocol: Final = "http"

    def __init__(
        self,
        address: str,
        *,
        tls: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        connections: int = 4,
    ) -> None:
        self.address = address
        self._base = f"{'https' if tls else 'http'}://{address}"
        self._headers = dict(headers or {})
        self._pool = pool_of(connections, tls)

    def close(self) -> None:
        """Close idle connections."""
        self._pool.clear()

    def get(self, path: str, *, timeout_seconds: float) -> bytes:
        """The body of a GET that answered 200.

        Raises:
            TritonError: as for every other call.
        """
        status, _, body = self._request("GET", path, None, {}, timeout_seconds)
        if status != 200:  # noqa: PLR2004
            raise _status_error(status, body)
        return body

    def post(self, path: str, body: bytes, *, timeout_seconds: float) -> bytes:
        """The body of a POST that answered 200.

        Raises:
            TritonError: as for every other call.
        """
        headers = {"Content-Type": "application/json"}
        status, _, reply = self._request("POST", path, body, headers, timeout_seconds)
        if status != 200:  # noqa: PLR2004
            raise _status_error(status, reply)
        return reply

    def infer(self, request: InferRequest, *, timeout_seconds: float) -> InferReply:
        """One request, one response, tensors as binary data."""
        body, headers = _encode_request(request)
        headers |= request.headers
        path = f"/v2/models/{quote(request.model, safe='')}"
        if request.version:
            path += f"/versions/{quote(request.version, safe='')}"
        started = time.perf_counter()
        status, reply_headers, reply = self._request(
            "POST", f"{path}/infer", body, headers, timeout_seconds
        )
        duration = time.perf_counter() - started
        if status != 200:  # noqa: PLR2004
            raise _status_error(status, reply)
        return InferReply(_decode_reply(reply_headers, reply), duration)

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_seconds: float,
    ) -> tuple[int, Mapping[str, str], bytes]:
        deadline = time.monotonic() + timeout_seconds
        try:
            response = self._pool.request(
                method,
                self._base + path,
                body=body,
                headers={**self._headers, **headers},
                timeout=urllib3.Timeout(total=timeout_seconds),
                preload_content=False,
                redirect=False,
            )
            try:
                data = _read(response, deadline)
            except BaseException:
                # Half-read: the connection cannot be used again.
                response.close()
                raise
            response.release_conn()
        except NewConnectionError as error:
            # Refused. To urllib3 it is a kind of timeout, so it must be asked first.
            raise errors.UnavailableError(str(error)) from None
        except UrllibTimeoutError as error:
            raise errors.DeadlineError(str(error)) from None
        except HTTPError as error:
            raise _transport_error(error) from None
        return response.status, response.headers, data


def _read(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    # Inflating a body takes time without a read.
    parts: list[bytes] = []
    size = 0
    for chunk in response.stream(_CHUNK_BYTES):
        parts.append(chunk)
        size += len(chunk)
        if time.monotonic() > deadline:
            raise errors.DeadlineError(f"only {size} bytes of the answer came in time")
        if size > MAX_BODY_BYTES:
            raise errors.ProtocolError(f"the answer is larger than {MAX_BODY_BYTES} B")
    return b"".join(parts)


def _transport_error(error: HTTPError) -> errors.TritonError:
    text = f"{type(error).__name__}: {error}"
    # urllib3 has one ProtocolError for a reset before the answer, half an answer and
    # garbage; only what came before any answer means that nobody is there.
    if "Connection aborted" in text and (
        "RemoteDisconnected" in text or "Reset" in text or "Broken pipe" in text
    ):
        return errors.UnavailableError(text)
    return errors.ProtocolError(text)


def _status_error(status: int, body: bytes) -> errors.TritonError:
    text = f"HTTP {status}: {_error_text(body)}"
    if status == 503:  # noqa: PLR2004
        return errors.UnavailableError(text)
    if status in {400, 404, 405, 413, 422}:
        return errors.InvalidRequestError(text)
    if status == 504:  # noqa: PLR2004
        return errors.DeadlineError(text)
    return errors.ModelError(text)


def _error_text(body: bytes) -> str:
    text = body[:500].decode("utf-8", "replace")
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text


def _encode_request(request: InferRequest) -> tuple[bytes, dict[str, str]]:
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
    header = json.dumps(
        {
            "id": request.request_id,
            "inputs": inputs,
            "parameters": {**request.parameters, "binary_data_output": True},
        },
        separators=(",", ":"),
    ).encode()
    return b"".join((header, *contents)), {
        "Content-Type": "application/octet-stream",
        _HEADER_LENGTH: str(len(header)),
    }


def _decode_reply(headers: Mapping[str, str], body: bytes) -> tuple[OutputTensor, ...]:
    try:
        length = int(headers.get(_HEADER_LENGTH, len(body)))
        document = json.loads(body[:length])
        position = length
        outputs = []
        for entry in document.get("outputs", ()):
            size = int(entry["parameters"]["binary_data_size"])
            data = body[position : position + size]
            position += size
            outputs.append(
                OutputTensor(
                    str(entry["name"]),
                    str(entry["datatype"]),
                    tuple(int(dim) for dim in entry["shape"]),
                    data,
                )
            )
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise errors.ProtocolError(
            f"the answer is no inference response: {type(error).__name__}: {error}"
        ) from None
    if position != len(body):
        raise errors.ProtocolError(
            f"the answer has {len(body)} bytes; its tensors end at {position}"
        )
    return tuple(outputs)
