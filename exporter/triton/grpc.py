"""Triton over gRPC: the control plane and inference.

Calls are synchronous and made from worker threads: a blocking unary call answers about
0.15 ms sooner than the asyncio one, and a probe should measure the server, not us.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from exporter import errors
from exporter.network.addresses import NamedHost
from exporter.network.grpc_core import grpc
from exporter.triton import USER_AGENT
from exporter.triton.grpc_errors import ControlChannel, translated_errors
from exporter.triton.kserve import (
    bounded,
    gpus_of,
    infer_message,
    model_statistics,
    outputs_of,
    parsed,
    pb,
    service_pb2_grpc,
    tensor_spec,
)
from exporter.triton.protocol_types import (
    IndexEntry,
    InferReply,
    InferRequest,
    ModelSpec,
    ModelStatistics,
    ServerInfo,
)
from exporter.triton.sequence_ids import common_type, types_of_config
from exporter.triton.streamed_reply import StreamedReply
from exporter.triton.uncancelled_calls import UncancelledCalls

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
# The maximum of the protocol would be gigabytes of records here.
MAX_MODELS: Final = 50_000
MAX_TENSORS: Final = 10_000
MAX_STEPS: Final = 1_000
MAX_BATCHES: Final = 100_000
MAX_NAME_CHARACTERS: Final = 16_384

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # The default backs off to two minutes; a restarted Triton must be seen at once. A call
    # that fails because the last attempt was a moment ago would hide it for an interval.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 200),
    # How long a handshake may take. A frozen server's is not over before it thaws, and
    # is no server that is gone.
    ("grpc.min_reconnect_backoff_ms", 60_000),
    # By default a name is resolved again after 30 s at the earliest.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.enable_retries", 0),
    # Else the proxy of HTTP_PROXY would be watched in place of the server.
    ("grpc.enable_http_proxy", 0),
    # A channel of our own: one that another client broke is no witness.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.primary_user_agent", USER_AGENT),
)

_INFER: Final = "/inference.GRPCInferenceService/ModelInfer"
_SHOWN_CHARACTERS: Final = 1_000
_SILENT_CALLS: Final = 2
_LEAST_SECONDS: Final = 0.05


class GrpcClient:
    """One Triton server over gRPC. Thread-safe; every call has a deadline.

    Every method raises the `TritonError` that tells what happened.
    """

    protocol: Final = "grpc"

    def __init__(
        self,
        address: str,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        headers: Mapping[str, str] | None = None,
        host: NamedHost | None = None,
    ) -> None:
        self.address = address
        self.host = host or NamedHost(address)
        self.moves = 0
        """Number of times that the name was found to stand for another address."""
        self._moving = threading.Lock()
        self._credentials = credentials
        self._silent = 0
        self._calls = UncancelledCalls()
        self._connect()
        self._metadata = tuple((k.lower(), v) for k, v in (headers or {}).items())

    def _connect(self) -> None:
        address, credentials = self.address, self._credentials
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        else:
            self._channel = grpc.secure_channel(address, credentials, options=_OPTIONS)
        stub = service_pb2_grpc.GRPCInferenceServiceStub
        self._stub: Any = stub(ControlChannel(self._channel))
        self._infer_stub: Any = stub(self._channel)
        # Bytes to bytes: making and reading messages is our time, not the server's.
        self._infer: Any = self._channel.unary_unary(_INFER)

    def again(self) -> GrpcClient:
        """Another client to the same address, on a connection of its own."""
        return GrpcClient(
            self.address,
            credentials=self._credentials,
            headers=dict(self._metadata),
        )

    def renew(self, credentials: grpc.ChannelCredentials) -> None:
        """Use other credentials from the next call on, on a new connection."""
        self._credentials = credentials
        self._connect()

    def follow(self) -> bool:
        """Connect anew if the name stands for another address now; return whether it does.

        The core of grpc stays with the server that it has for as long as that answers.
        """
        with self._moving:  # who gets False finds the new connection made
            if not self.host.has_moved():
                return False
            self.moves += 1
            self._connect()
            return True

    def close(self) -> None:
        """Close the channel, once the answers under way have ended."""
        self._calls.close(self._channel.close)

    def is_waiting(self, model: str) -> bool:
        """Return whether a request to the model has no whole answer, a given-up one included."""
        return self._calls.is_under_way(model)

    def live(self, *, timeout_seconds: float) -> bool:
        """Return whether the server says it is live."""
        reply = self._call("ServerLive", pb.ServerLiveRequest(), timeout_seconds)
        return bool(reply.live)

    def ready(self, *, timeout_seconds: float) -> bool:
        """Return whether the server says it is ready."""
        reply = self._call("ServerReady", pb.ServerReadyRequest(), timeout_seconds)
        return bool(reply.ready)

    def ready_later(self, model: str, version: str, *, timeout_seconds: float) -> Any:
        """Request the readiness of a model version, or for "" of the server; do not wait.

        Returns a grpc future for `ready_answer`.
        """
        if model:
            ask = self._stub.ModelReady
            message = pb.ModelReadyRequest(name=model, version=version)
        else:
            ask, message = self._stub.ServerReady, pb.ServerReadyRequest()
        return ask.future(message, timeout=timeout_seconds, metadata=self._metadata)

    def ready_answer(self, call: Any) -> bool:
        """The answer to a question of `ready_later` that is done."""
        with translated_errors():
            return bool(call.result().ready)

    def server_info(self, *, timeout_seconds: float) -> ServerInfo:
        """Name, version and extensions of the server."""
        reply = self._call(
            "ServerMetadata", pb.ServerMetadataRequest(), timeout_seconds
        )
        extensions = bounded("extensions", reply.extensions, MAX_TENSORS)
        return ServerInfo(
            reply.name[:_SHOWN_CHARACTERS],
            reply.version[:_SHOWN_CHARACTERS],
            tuple(extensions),
        )

    def repository_index(self, *, timeout_seconds: float) -> tuple[IndexEntry, ...]:
        """Every model version the server knows of, ready or not."""
        reply = self._call(
            "RepositoryIndex", pb.RepositoryIndexRequest(), timeout_seconds
        )
        return tuple(
            IndexEntry(m.name, m.version, m.state, m.reason[:_SHOWN_CHARACTERS])
            for m in bounded("models", reply.models, MAX_MODELS)
            if len(m.name) + len(m.version) <= MAX_NAME_CHARACTERS
        )

    def model_spec(
        self, name: str, version: str, *, timeout_seconds: float
    ) -> ModelSpec:
        """Signature and client-relevant settings of one model version."""
        request = pb.ModelMetadataRequest(name=name, version=version)
        metadata = self._call("ModelMetadata", request, timeout_seconds)
        config = self._config(name, version, timeout_seconds)
        for what, entries, most in (
            ("inputs", metadata.inputs, MAX_TENSORS),
            ("outputs", metadata.outputs, MAX_TENSORS),
            ("configured inputs", config.input, MAX_TENSORS),
            ("steps", config.ensemble_scheduling.step, MAX_STEPS),
        ):
            bounded(what, entries, most)
        optional = {tensor.name for tensor in config.input if tensor.optional}
        sequence_types = types_of_config(
            config, lambda step, of: self._config(step, of, timeout_seconds)
        )
        return ModelSpec(
            name=name,
            version=version,
            inputs=tuple(tensor_spec(t, optional) for t in metadata.inputs),
            outputs=tuple(tensor_spec(t, frozenset()) for t in metadata.outputs),
            max_batch_size=config.max_batch_size,
            decoupled=config.model_transaction_policy.decoupled,
            sequence=bool(sequence_types),
            sequence_id_type=common_type(sequence_types),
            sequence_idle_seconds=config.sequence_batching.max_sequence_idle_microseconds
            / 1e6,
            response_cache=config.response_cache.enable,
            backend=config.backend,
            dynamic_batching=config.HasField("dynamic_batching"),
            max_queue_delay_us=config.dynamic_batching.max_queue_delay_microseconds,
            instances=sum(
                # `count` is for each GPU, where the group names any.
                max(1, group.count) * max(1, len(group.gpus))
                for group in config.instance_group
            ),
            gpus=gpus_of(config),
            steps=tuple(
                (s.model_name, "" if s.model_version < 0 else str(s.model_version))
                for s in config.ensemble_scheduling.step
            ),
        )

    def _config(self, name: str, version: str, timeout_seconds: float) -> Any:
        request = pb.ModelConfigRequest(name=name, version=version)
        try:
            reply = self._call("ModelConfig", request, timeout_seconds)
        except errors.UnsupportedError:
            # An extension of Triton's that other KServe servers need not have.
            reply = pb.ModelConfigResponse()
        return reply.config

    def statistics(
        self, model: str = "", version: str = "", *, timeout_seconds: float
    ) -> tuple[ModelStatistics, ...]:
        """Cumulative statistics of one model version, or of every ready one.

        With `--model-namespacing`, models of one name have none; they are left out.
        """
        try:
            return self._statistics(model, version, timeout_seconds)
        except errors.InvalidRequestError as error:
            if model or isinstance(error, errors.UnsupportedError):
                raise
        # Triton has no answer for all models where it has none for one of them.
        ends = time.monotonic() + timeout_seconds
        index = self.repository_index(timeout_seconds=timeout_seconds)
        found: list[ModelStatistics] = []
        for key in dict.fromkeys(entry.key for entry in index if entry.ready):
            with contextlib.suppress(errors.InvalidRequestError):
                left = max(_LEAST_SECONDS, ends - time.monotonic())
                found += self._statistics(*key, left)
        return tuple(found)

    def _statistics(
        self, model: str, version: str, timeout_seconds: float
    ) -> tuple[ModelStatistics, ...]:
        request = pb.ModelStatisticsRequest(name=model, version=version)
        reply = self._call("ModelStatistics", request, timeout_seconds)
        entries = bounded("models", reply.model_stats, MAX_MODELS)
        batches = sum(len(entry.batch_stats) for entry in entries)
        if batches > MAX_BATCHES:
            raise errors.ProtocolError(
                f"found statistics of {batches} batch sizes; the maximum is "
                f"{MAX_BATCHES}"
            )
        return tuple(
            model_statistics(entry)
            for entry in entries
            if len(entry.name) + len(entry.version) <= MAX_NAME_CHARACTERS
        )

    def trace_settings(
        self, model: str, *, timeout_seconds: float
    ) -> dict[str, tuple[str, ...]]:
        """The trace settings in force for a model, or the global ones for ""."""
        request = pb.TraceSettingRequest(model_name=model)
        reply = self._call("TraceSetting", request, timeout_seconds)
        return {key: tuple(item.value) for key, item in reply.settings.items()}

    def infer(self, request: InferRequest, *, timeout_seconds: float) -> InferReply:
        """One request, one response."""
        message = infer_message(request).SerializeToString()
        metadata = (*self._metadata, *request.headers.items())
        infer = self._infer

        def ask(deadline_seconds: float, _: threading.Event) -> tuple[bytes, float]:
            started = time.perf_counter()
            with translated_errors():
                reply = infer(message, timeout=deadline_seconds, metadata=metadata)
            return reply, time.perf_counter() - started

        reply, duration = self._calls.answer(
            ask, model=request.model, timeout_seconds=timeout_seconds
        )
        return InferReply(outputs_of(parsed(reply)), duration)

    def infer_stream(
        self, request: InferRequest, *, timeout_seconds: float
    ) -> InferReply:
        """One request to a decoupled model, all its responses up to the final one."""
        message = infer_message(request)
        # Without it a model that sends nothing more leaves the stream open for ever.
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        metadata = (*self._metadata, *request.headers.items())
        infer = self._infer_stub.ModelStreamInfer

        faults: list[errors.TritonError] = []

        def ask(deadline_seconds: float, too_late: threading.Event) -> InferReply:
            streamed = StreamedReply(time.perf_counter())
            with translated_errors():
                # A single message half-closes the stream; Triton finishes what it has.
                stream = infer(
                    iter((message,)), timeout=deadline_seconds, metadata=metadata
                )
                # To its end, also after an error: see `UncancelledCalls`.
                for part in stream:
                    if part.error_message:
                        faults.append(errors.ModelError(part.error_message))
                    if too_late.is_set():
                        streamed = StreamedReply(0.0)
                    elif part.infer_response.outputs and not faults:
                        now = time.perf_counter()
                        try:
                            streamed.add(outputs_of(part.infer_response), now)
                        except errors.ProtocolError as error:
                            faults.append(error)
            return streamed.ended(time.perf_counter())

        try:
            reply = self._calls.answer(
                ask, model=request.model, timeout_seconds=timeout_seconds
            )
        except errors.DeadlineError:
            if not faults:
                raise
            raise faults[0] from None
        if faults:
            raise faults[0]
        return reply

    def _call(self, method: str, message: object, timeout_seconds: float) -> Any:
        """Ask once, and once more if the name has come to stand for another server."""
        channel, started = self._channel, time.monotonic()
        try:
            return self._answer(method, message, timeout_seconds)
        except errors.UnavailableError:
            if not self.follow() and channel is self._channel:
                raise
            left = timeout_seconds - (time.monotonic() - started)
            return self._answer(method, message, max(_LEAST_SECONDS, left))

    def _answer(self, method: str, message: object, timeout_seconds: float) -> Any:
        channel, call = self._channel, getattr(self._stub, method)
        try:
            with translated_errors():
                reply = call(message, timeout=timeout_seconds, metadata=self._metadata)
        except errors.DeadlineError:
            self._unheard(channel)
            raise
        except errors.TritonError:
            self._silent = 0
            raise
        self._silent = 0
        return reply

    def _unheard(self, channel: grpc.Channel) -> None:
        """Open a new connection once no answer comes through this one.

        TCP needs a quarter of an hour to notice that the other side is gone without a
        word, and HTTP/2 pings are no way out: Triton ends a connection that sends more
        than one in five minutes. The old channel closes with its last call.
        """
        self._silent += channel is self._channel
        if self._silent >= _SILENT_CALLS:
            self._silent = 0
            self._connect()
