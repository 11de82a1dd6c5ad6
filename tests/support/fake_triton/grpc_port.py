"""The fake's gRPC port: a real gRPC server behind a gate that can spoil its bytes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NoReturn

from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError

from exporter.network.grpc_core import grpc
from exporter.network.held_port import LOOPBACK
from fake_triton.behaviours import Body, Status
from fake_triton.calls import REQUEST_BYTES, Call, Document, EndedError, Ready
from fake_triton.gate import Gate
from fake_triton.grpc_messages import (
    infer_request,
    infer_response,
    pb,
    settings_response,
)
from fake_triton.inference import InferAnswer
from fake_triton.listener import JOIN_SECONDS
from fake_triton.repository import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fake_triton.calls import Content, Reply
    from fake_triton.journal import Operation
    from fake_triton.server_core import ServerCore

SERVICE: Final = "inference.GRPCInferenceService"
WORKERS: Final = 256
"""Calls in progress at once; threads start as they are needed."""

_METHODS: Final[dict[str, Operation]] = {
    "ServerLive": "server_live",
    "ServerReady": "server_ready",
    "ServerMetadata": "server_metadata",
    "ModelReady": "model_ready",
    "ModelMetadata": "model_metadata",
    "ModelConfig": "model_config",
    "ModelStatistics": "statistics",
    "ModelInfer": "infer",
    "RepositoryIndex": "repository_index",
    "RepositoryModelLoad": "repository_load",
    "RepositoryModelUnload": "repository_unload",
    "TraceSetting": "trace_setting",
}


class GrpcPort:
    """KServe-v2 with Triton's extensions over gRPC."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self._workers = ThreadPoolExecutor(WORKERS, "fake-triton-rpc")
        self._server = grpc.server(
            self._workers,
            options=[
                ("grpc.max_receive_message_length", REQUEST_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ],
        )
        handlers = {
            method: grpc.unary_unary_rpc_method_handler(self._unary(method, operation))
            for method, operation in _METHODS.items()
        }
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            self._stream
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        server_port = self._server.add_insecure_port(f"{LOOPBACK}:0")
        self._server.start()
        self._gate = Gate(server_port, stopping=core.stopping)
        self.listener = self._gate.listener

    def stop(self) -> None:
        """End every call and every connection, and wait for the threads."""
        self.listener.close()
        self._server.stop(grace=0).wait(JOIN_SECONDS)
        self._workers.shutdown()

    def _unary(
        self, method: str, operation: Operation
    ) -> Callable[[bytes, Any], bytes]:
        message_type = getattr(pb, f"{method}Request")
        response_type = getattr(pb, f"{method}Response")

        def answer(data: bytes, context: Any) -> bytes:
            request = message_type()
            try:
                request.ParseFromString(data)
            except DecodeError:
                context.abort(grpc.StatusCode.INTERNAL, "Unable to parse request")
            try:
                call = _call(operation, request, context)
                with self._core.serving(call) as reply:
                    return self._sent(reply, response_type, context)
            except RefusedError as refusal:
                _abort(context, refusal.status)
            except EndedError:
                context.abort(grpc.StatusCode.UNAVAILABLE, "nobody is waiting")
            raise AssertionError("abort() returned")

        return answer

    def _sent(self, reply: Reply, response_type: Any, context: Any) -> bytes:
        if reply.delivery is not None:
            self._gate.spoil(context.peer(), reply.delivery)
        content = reply.content
        if isinstance(content, Status):
            raise RefusedError(content)
        if isinstance(content, Body):
            return content.data
        return bytes(_message(content, response_type).SerializeToString())

    def _stream(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        for data in messages:
            request = pb.ModelInferRequest.FromString(data)
            call = _call("infer", request, context, streamed=True)
            try:
                with self._core.serving(call) as reply:
                    if reply.delivery is not None:
                        self._gate.spoil(context.peer(), reply.delivery)
                    yield from _stream_messages(reply.content, request)
            except EndedError:
                context.abort(grpc.StatusCode.UNAVAILABLE, "nobody is waiting")


def _stream_messages(content: Content, request: Any) -> Iterator[bytes]:
    if isinstance(content, Body):
        yield content.data
    elif isinstance(content, Status):
        yield pb.ModelStreamInferResponse(
            error_message=content.message,
            infer_response=pb.ModelInferResponse(id=request.id),
        ).SerializeToString()
    elif isinstance(content, tuple):
        for answer in content:
            yield pb.ModelStreamInferResponse(
                infer_response=infer_response(answer)
            ).SerializeToString()


def _call(
    operation: Operation, request: Any, context: Any, *, streamed: bool = False
) -> Call:
    left = threading.Event()
    if not context.add_callback(left.set):
        left.set()
    infer = operation == "infer"
    if operation == "trace_setting" and request.settings:
        operation = "trace_update"
    return Call(
        "grpc",
        operation,
        _model_name(operation, request),
        request.model_version if infer else getattr(request, "version", ""),
        headers=_metadata(context),
        deadline_seconds=context.time_remaining(),
        infer=infer_request(request) if infer else None,
        ready_only=operation == "repository_index" and request.ready,
        streamed=streamed,
        gone=left.is_set,
    )


def _model_name(operation: Operation, request: Any) -> str:
    by_model_name = {
        "infer",
        "repository_load",
        "repository_unload",
        "trace_setting",
        "trace_update",
    }
    member = "model_name" if operation in by_model_name else "name"
    name: str = getattr(request, member, "")
    return name


def _metadata(context: Any) -> dict[str, str]:
    return {
        key: value if isinstance(value, str) else value.hex()
        for key, value in context.invocation_metadata()
    }


def _abort(context: Any, status: Status) -> NoReturn:
    context.abort(grpc.StatusCode[status.grpc], status.message)
    raise AssertionError("abort() returned")


def _message(content: Content, response_type: Any) -> Any:
    match content:
        case Ready(yes=yes):
            live = response_type is pb.ServerLiveResponse
            return response_type(live=yes) if live else response_type(ready=yes)
        case InferAnswer():
            return infer_response(content)
        case Document(value=value):
            return _document(value, response_type)
    raise AssertionError(f"gRPC has no message for {content}")


def _document(value: Any, response_type: Any) -> Any:
    if response_type is pb.TraceSettingResponse:
        return settings_response(value)
    if response_type is pb.RepositoryIndexResponse:
        value = {"models": value}
    elif response_type is pb.ModelConfigResponse:
        value = {"config": value}
    return ParseDict(value, response_type())
