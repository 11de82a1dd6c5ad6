"""The fake's HTTP port and its metrics port."""

from __future__ import annotations

import select
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fake_triton.behaviours import (
    GARBAGE,
    Body,
    Dripping,
    Dropped,
    Garbage,
    HalfAnswer,
    Status,
)
from fake_triton.calls import CONNECTIONS, Call, Document, EndedError, Ready, Text
from fake_triton.http_routes import METHOD_NOT_ALLOWED, NO_SUCH_PATH, route
from fake_triton.inference import InferAnswer, InferRequest
from fake_triton.kserve_http import (
    HEADER_LENGTH,
    HttpAnswer,
    HttpRequest,
    ParsedInfer,
    infer_answer,
    json_answer,
    parse_infer,
    read_request,
    status_answer,
)
from fake_triton.listener import Listener, reset_on_close
from fake_triton.repository import RefusedError

if TYPE_CHECKING:
    from fake_triton.behaviours import Delivery
    from fake_triton.calls import Content
    from fake_triton.server_core import ServerCore

METRICS_TYPE: Final = "text/plain; charset=utf-8"
LINGER_SECONDS: Final = 2.0
LINGER_BYTES: Final = 65_536
NO_INFER: Final = ParsedInfer(InferRequest("", ()))


class _ConnectionOverError(OSError):
    """This connection is to end now."""


class HttpPort:
    """KServe-v2 with Triton's extensions over HTTP/1.1, connections kept alive."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self.listener = Listener(
            self._serve, name="fake-triton-http", max_connections=CONNECTIONS
        )
        self.metrics = Listener(
            self._serve_metrics,
            name="fake-triton-metrics",
            max_connections=CONNECTIONS,
        )

    def _serve(self, connection: socket.socket) -> None:
        broken = False
        with connection.makefile("rb") as stream:
            while True:
                try:
                    request = read_request(stream)
                except RefusedError as refusal:
                    _refuse(connection, status_answer(refusal.status))
                    return
                if request is None or broken:
                    return
                # After an error of its own MLServer's HTTP server closes the connection,
                # which a client may notice only with its next request.
                broken = not self._takes(request)
                self._answer(connection, request)
                if request.closes:
                    return

    def _takes(self, request: HttpRequest) -> bool:
        return self._core.binary_tensors or HEADER_LENGTH not in request.headers

    def _answer(self, connection: socket.socket, request: HttpRequest) -> None:
        parsed = NO_INFER
        try:
            call = self._call(connection, request)
            if call.operation == "infer":
                if not self._takes(request):
                    # MLServer 1.7 cannot even say that it does not understand.
                    raise RefusedError(Status("INTERNAL", 500, "Internal Server Error"))  # noqa: TRY301
                parsed = parse_infer(request)
                call = replace(call, infer=parsed.request)
        except RefusedError as refusal:
            _send(connection, status_answer(refusal.status))
            return
        self._reply(connection, call, parsed)

    def _reply(
        self, connection: socket.socket, call: Call, parsed: ParsedInfer
    ) -> None:
        try:
            with self._core.serving(call) as reply:
                try:
                    answer = _written(reply.content, call, parsed)
                except RefusedError as refusal:
                    answer = status_answer(refusal.status)
                self._deliver(connection, answer, reply.delivery)
        except EndedError:
            raise _ConnectionOverError from None

    def _call(self, connection: socket.socket, request: HttpRequest) -> Call:
        found = route(request.method, request.target)
        return Call(
            "http",
            found.operation,
            found.model,
            found.version,
            headers=request.headers,
            gone=lambda: _has_left(connection),
        )

    def _serve_metrics(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            while True:
                try:
                    request = read_request(stream)
                    if request is None:
                        return
                    _check_metrics_request(request)
                except RefusedError as refusal:
                    _refuse(connection, status_answer(refusal.status))
                    return
                call = Call(
                    "metrics",
                    "metrics",
                    headers=request.headers,
                    gone=lambda: _has_left(connection),
                )
                self._reply(connection, call, NO_INFER)
                if request.closes:
                    return

    def _deliver(
        self, connection: socket.socket, answer: HttpAnswer, delivery: Delivery | None
    ) -> None:
        match delivery:
            case None:
                _send(connection, answer)
                return
            case Garbage():
                connection.sendall(GARBAGE)
            case HalfAnswer():
                half = answer.body[: len(answer.body) // 2]
                connection.sendall(answer.head() + half)
            case Dropped():
                reset_on_close(connection)
            case Dripping(interval_seconds=interval):
                connection.sendall(answer.head())
                for byte in answer.body:
                    connection.sendall(bytes((byte,)))
                    self._core.sleep(interval)
                return
        raise _ConnectionOverError


def _check_metrics_request(request: HttpRequest) -> None:
    if request.target.partition("?")[0] != "/metrics":
        raise RefusedError(NO_SUCH_PATH)
    if request.method != "GET":
        raise RefusedError(METHOD_NOT_ALLOWED)


def _written(content: Content, call: Call, parsed: ParsedInfer) -> HttpAnswer:
    match content:
        case Ready(yes=yes):
            return _readiness(call, yes=yes)
        case Status():
            return status_answer(content)
        case Body(data=data):
            return HttpAnswer(200, data)
        case Text(value=text):
            return HttpAnswer(200, text.encode(), METRICS_TYPE)
        case Document(value=value):
            return json_answer(value)
        case InferAnswer():
            return infer_answer(content, parsed)
        case _:
            raise AssertionError("streams are asked for over gRPC")


def _readiness(call: Call, *, yes: bool) -> HttpAnswer:
    if yes:
        return HttpAnswer(200, content_type="text/plain")
    model = call.operation == "model_ready"
    body = b'{"error":"Model version not ready"}' if model else b""
    return HttpAnswer(400, body, "text/plain")


def _send(connection: socket.socket, answer: HttpAnswer) -> None:
    connection.sendall(answer.head() + answer.body)


def _refuse(connection: socket.socket, answer: HttpAnswer) -> None:
    """Answer, and end a connection whose further bytes are not known to be a request.

    Closing at once would reset a client that is still sending before it reads.
    """
    _send(connection, answer)
    connection.shutdown(socket.SHUT_WR)
    deadline = time.monotonic() + LINGER_SECONDS
    connection.settimeout(LINGER_SECONDS)
    while time.monotonic() < deadline and connection.recv(LINGER_BYTES):
        pass


def _has_left(connection: socket.socket) -> bool:
    """Whether the client closed its end; a request waiting in the buffer is not that."""
    readable, _, _ = select.select([connection], [], [], 0)
    if not readable:
        return False
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except OSError:
        return True
