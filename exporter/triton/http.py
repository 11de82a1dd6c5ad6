"""Triton over HTTP: inference, readiness and the metrics page."""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import time
from typing import TYPE_CHECKING, Final

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, SSLError
from urllib3.exceptions import TimeoutError as UrllibTimeoutError

from exporter import errors
from exporter.triton import USER_AGENT
from exporter.triton.http_path import model_path
from exporter.triton.http_tensors import (
    BINARY_EXTENSION,
    binary_request,
    decode_binary_reply,
    decode_json_reply,
    json_request,
)
from exporter.triton.patience import MAX_BODY_BYTES, pool_of, sent_at
from exporter.triton.protocol_types import InferReply, InferRequest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

# Alert, TLS 1.x: what a TLS server answers to anything else.
_TLS_ALERT: Final = "\x15\x03"
_NO_TLS: Final = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}
_TLS_PAGE: Final = re.compile(rb"HTTPS|SSL certificate|TLS")
_CHUNK_BYTES: Final = 1 << 16
_MAY_MEAN_JSON_ONLY: Final = frozenset({400, 415, 422, 500})
"""Statuses of servers without binary tensors; MLServer 1.7 cannot decode them."""


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
        prefix: str = "",
    ) -> None:
        self.address = address
        self._base = f"{'https' if tls else 'http'}://{address}{prefix}"
        self._headers = {"User-Agent": USER_AGENT, **(headers or {})}
        self._connections = connections
        self._pool = pool_of(connections, tls)
        self._binary: bool | None = None
        """True if tensors may be sent as binary data; None until that is known."""

    def renew(self, tls: ssl.SSLContext) -> None:
        """Use another context from the next request on, on new connections."""
        old, self._pool = self._pool, pool_of(self._connections, tls)
        old.clear()

    def close(self) -> None:
        """Close idle connections; the next request opens a new one."""
        self._pool.clear()

    def get(self, path: str, *, timeout_seconds: float) -> bytes:
        """The body of a GET that answered 200.

        Raises:
            TritonError: as for every other call.
        """
        status, body = self.answer(path, timeout_seconds=timeout_seconds)
        if status != 200:  # noqa: PLR2004
            raise status_error(status, body)
        return body

    def answer(self, path: str, *, timeout_seconds: float) -> tuple[int, bytes]:
        """Status and body of a GET, whatever the status.

        Raises:
            TritonError: as for every other call.
        """
        status, _, body, _ = self._request("GET", path, None, {}, timeout_seconds)
        return status, body

    def post(self, path: str, body: bytes, *, timeout_seconds: float) -> bytes:
        """The body of a POST that answered 200.

        Raises:
            TritonError: as for every other call.
        """
        headers = {"Content-Type": "application/json"}
        status, _, reply, _ = self._request(
            "POST", path, body, headers, timeout_seconds
        )
        if status != 200:  # noqa: PLR2004
            raise status_error(status, reply)
        return reply

    def infer(self, request: InferRequest, *, timeout_seconds: float) -> InferReply:
        """One request, one response.

        Tensors are binary data. A server that refuses such a request and does not list
        them among its extensions is asked again in JSON, and only so from then on.
        """
        ends = time.monotonic() + timeout_seconds
        binary = self._binary is not False
        status, reply_headers, reply, duration = self._infer(
            request, timeout_seconds, binary=binary
        )
        if binary and self._binary is None and status in _MAY_MEAN_JSON_ONLY:
            self._binary = self._takes_binary(max(0.05, ends - time.monotonic()))
            if self._binary is False:
                binary = False
                status, reply_headers, reply, duration = self._infer(
                    request, max(0.05, ends - time.monotonic()), binary=binary
                )
        if status != 200:  # noqa: PLR2004
            raise status_error(status, reply)
        if binary:
            return InferReply(decode_binary_reply(reply_headers, reply), duration)
        return InferReply(decode_json_reply(reply), duration)

    def _infer(
        self, request: InferRequest, timeout_seconds: float, *, binary: bool
    ) -> tuple[int, Mapping[str, str], bytes, float]:
        """Status, headers, body and duration of one request."""
        if binary:
            body, headers = binary_request(request)
        else:
            body, headers = json_request(request), {"Content-Type": "application/json"}
        path = model_path(request.model, request.version)
        return self._request(
            "POST",
            f"{path}/infer",
            body,
            {**headers, **request.headers},
            timeout_seconds,
        )

    def _takes_binary(self, timeout_seconds: float) -> bool | None:
        """Return whether the server lists binary tensors; None if unknown."""
        # Some close the connection after such an error without announcing it.
        self._pool.clear()
        try:
            document = json.loads(self.get("/v2", timeout_seconds=timeout_seconds))
            return BINARY_EXTENSION in document["extensions"]
        except (errors.TritonError, ValueError, LookupError, TypeError):
            return None

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_seconds: float,
    ) -> tuple[int, Mapping[str, str], bytes, float]:
        """Status, headers, body, and the seconds from sending to the end of the body."""
        deadline = time.monotonic() + timeout_seconds
        with self.opened(method, path, body, headers, timeout_seconds) as response:
            started = sent_at(response)
            reply = _read(response, deadline)
            seconds = time.perf_counter() - started
            return response.status, response.headers, reply, seconds

    @contextlib.contextmanager
    def opened(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_seconds: float,
    ) -> Generator[urllib3.BaseHTTPResponse]:
        """An answer whose content the body of the `with` reads, within the timeout.

        Raises:
            TritonError: as for every other call.
        """
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
                yield response
            except BaseException:
                # Half-read: the connection cannot be used again.
                response.close()
                raise
            response.release_conn()
        except NewConnectionError as error:
            # Refused. To urllib3 it is a kind of timeout, so it must be asked first.
            # Another server may listen there next.
            self._binary = None
            raise errors.UnreachableError(str(error.__cause__ or error)) from None
        except UrllibTimeoutError:
            raise errors.DeadlineError(f"no answer in {timeout_seconds:g} s") from None
        except HTTPError as error:
            raise _transport_error(error) from None


def _read(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    # Inflating a body takes time without a read.
    parts: list[bytes] = []
    size = 0
    for chunk in response.stream(_CHUNK_BYTES):
        parts.append(chunk)
        size += len(chunk)
        if time.monotonic() > deadline:
            raise errors.DeadlineError(
                f"only {size} bytes of the answer arrived in time"
            )
        if size > MAX_BODY_BYTES:
            raise errors.ProtocolError(f"the answer is larger than {MAX_BODY_BYTES} B")
    return b"".join(parts)


def _transport_error(error: HTTPError) -> errors.TritonError:
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SSLError):
        return errors.UnavailableError(_tls_failure(error))
    if any(str(part).startswith(_TLS_ALERT) for part in _causes(error)):
        return errors.UnavailableError(
            "the port uses TLS and got plain HTTP; set target.tls"
        )
    # urllib3 has one ProtocolError for a reset before the answer, half an answer and
    # garbage; only what came before any answer means that nobody is there.
    if "Connection aborted" in text and (
        "RemoteDisconnected" in text or "Reset" in text or "Broken pipe" in text
    ):
        return errors.UnavailableError(text)
    return errors.ProtocolError(text)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The errors that urllib3's consists of."""
    yield error
    for part in error.args:
        if isinstance(part, BaseException):
            yield from _causes(part)


def _tls_failure(error: SSLError) -> str:
    cause = next((e for e in _causes(error) if isinstance(e, ssl.SSLError)), None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"TLS: the server's certificate is refused: {cause.verify_message}"
    reason = getattr(cause, "reason", None) or str(cause or error)
    if reason in _NO_TLS:
        return (
            f"TLS: the port does not speak TLS ({reason}); for TLS on gRPC alone set "
            "target.tls.protocols to [grpc]"
        )
    return f"TLS: {reason}"


def status_error(status: int, body: bytes) -> errors.TritonError:
    """Return the error that an answer with this status means."""
    text = f"HTTP {status}: {_error_text(body)}"
    # A proxy's page where TLS or a client certificate is missing; Triton answers JSON.
    if status == 400 and _TLS_PAGE.search(body) and not body.startswith(b"{"):  # noqa: PLR2004
        return errors.UnavailableError(text)
    # Of a proxy, 502 means that no server answers behind it.
    if status in {502, 503}:
        return errors.unavailable(text)
    if status in {401, 403}:
        return errors.DeniedError(text)
    if status in {400, 404, 405, 413, 422}:
        return errors.InvalidRequestError(text)
    if status == 504:  # noqa: PLR2004
        return errors.DeadlineError(text)
    return errors.ModelError(text)


def _error_text(body: bytes) -> str:
    text = body[:500].decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return text
