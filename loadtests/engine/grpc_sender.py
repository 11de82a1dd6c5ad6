"""Requests over gRPC by grpc.aio, for mixes with streams; bytes in and bytes out."""

from __future__ import annotations

import asyncio
import contextlib
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Self

from exporter.network.grpc_core import grpc
from exporter.triton.kserve import service_pb2
from loadtests.engine.answer_frames import message_outputs
from loadtests.engine.keeping import MAX_ANSWER_BYTES
from loadtests.engine.senders import ACCEPTED, Turn, Turns
from loadtests.engine.sequences import sequence_parameters
from loadtests.errors import LoadError
from loadtests.result import Outcome
from loadtests.tls import grpc_credentials, require_trusted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from types import TracebackType

    from loadtests.engine.recorder import Recorder
    from loadtests.engine.sequences import Sequence
    from loadtests.mix import Body, Mix
    from loadtests.target import Target

pb: Final[Any] = service_pb2
_SERVICE: Final = "/inference.GRPCInferenceService/"
_CONNECT_SECONDS: Final = 10.0
_WIND_UP_SECONDS: Final = 2.0
"""How long what ends sequences is waited for."""
_BROKEN: Final = ("Stream removed", "failed to connect", "Internal error from Core")
"""What gRPC says of a connection, and no server of itself; the last where a request
could not be written."""
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    ("grpc.max_send_message_length", MAX_ANSWER_BYTES),
    # A server that was down is to be found again at once.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A request that is sent twice would be measured once.
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


class GrpcSender:
    """One HTTP/2 connection; a task for each request in flight."""

    def __init__(
        self, target: Target, mix: Mix, *, timeout_seconds: float, seed: int
    ) -> None:
        self._target = target
        self._mix = mix
        self._timeout = timeout_seconds
        self._metadata = tuple((k.lower(), v) for k, v in target.headers.items())
        self._turns = Turns(mix, seed)
        self._starts = {
            "unary": self._unary,
            "stream": self._stream,
            "sequence": self._sequence,
        }
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._channel = _channel(self._target)
        self._infer = self._channel.unary_unary(f"{_SERVICE}ModelInfer")
        self._infer_stream = self._channel.stream_stream(f"{_SERVICE}ModelStreamInfer")
        self._loop = asyncio.get_running_loop()
        if not await _connected(self._channel):
            await self._channel.close()
            require_trusted(self._target)
            raise LoadError(
                f"no gRPC server answers at {self._target.address}; "
                "is the address right?"
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._tasks and kind is None:
            await asyncio.wait(self._tasks, timeout=_WIND_UP_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close()

    def send(self, index: int, recorder: Recorder) -> None:
        """Begin the request."""
        place = recorder.entry[index]
        entry = self._mix.entries[place]
        body = entry.bodies[index % len(entry.bodies)]
        recorder.begin(index)
        start = self._starts[entry.style]
        self._keep(start(index, place, body, recorder))

    def wind_up(self) -> None:
        """End the sequences that have begun; nobody times those requests."""
        self._turns.wind_up(self._close)

    def _close(self, _: int, body: Body, sequence: Sequence) -> None:
        self._keep(self._ended(body.data + sequence_parameters(sequence)))

    async def _ended(self, data: bytes) -> None:
        # A server that is gone has no sequences either.
        with contextlib.suppress(grpc.RpcError):
            await self._infer(data, timeout=self._timeout, metadata=self._metadata)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        # The loop itself holds tasks only weakly.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _unary(
        self, index: int, place: int, body: Body, recorder: Recorder
    ) -> None:
        await self._exchange(Turn(index, place, body, recorder, None), body.data)

    async def _sequence(
        self, index: int, place: int, body: Body, recorder: Recorder
    ) -> None:
        sequence = self._turns.take(place)
        data = body.data + sequence_parameters(sequence)
        await self._exchange(Turn(index, place, body, recorder, sequence), data)

    async def _exchange(self, turn: Turn, data: bytes) -> None:
        """Send and judge."""
        refused = self._turns.refused[turn.place]
        try:
            answer: bytes = await self._infer(
                data, timeout=self._timeout, metadata=self._metadata
            )
        except grpc.RpcError as error:
            self._fail(turn, error, perf_counter(), refused=refused)
            return
        now = perf_counter()
        fault: str | None = ACCEPTED
        if not refused:
            fault = self._turns.checks[turn.place].grpc_fault(answer, turn.body)
        outcome = Outcome.OK if fault is None else Outcome.WRONG
        self._turns.ended(turn, outcome, now, fault)

    async def _stream(
        self, index: int, place: int, body: Body, recorder: Recorder
    ) -> None:
        since: float | None = None
        refused = self._turns.refused[place]
        try:
            call = self._infer_stream(
                _once(body.data), timeout=self._timeout, metadata=self._metadata
            )
            fault = ACCEPTED if refused else None
            async for part in call:
                now = perf_counter()
                message = pb.ModelStreamInferResponse.FromString(part)
                if message.error_message:
                    outcome, text = _refusal(message.error_message, refused=refused)
                    call.cancel()
                    recorder.finish(index, outcome, now, text)
                    return
                if message.infer_response.outputs:
                    recorder.respond(index, now, since)
                    since = now
                    fault = fault or self._stream_fault(place, message, body)
        except grpc.RpcError as error:
            turn = Turn(index, place, body, recorder, None)
            self._fail(turn, error, perf_counter(), refused=refused)
            return
        if since is None and fault is None:
            fault = "the stream ended without a response"
        now = perf_counter() if since is None else since
        outcome = Outcome.OK if fault is None else Outcome.WRONG
        recorder.finish(index, outcome, now, fault)

    def _fail(self, turn: Turn, error: Any, now: float, *, refused: bool) -> None:
        if self._is_lost(error):
            self._turns.lost(turn, now, f"{error.code().name}: {error.details()}")
        else:
            outcome, message = _failure(error, refused=refused)
            self._turns.ended(turn, outcome, now, message)

    def _is_lost(self, error: Any) -> bool:
        """Return whether nobody answered: UNAVAILABLE is what a server may say, too."""
        # A connection that broke is at times READY for a moment still.
        if (error.details() or "").startswith(_BROKEN):
            return True
        unavailable = error.code() is grpc.StatusCode.UNAVAILABLE
        ready = self._channel.get_state() is grpc.ChannelConnectivity.READY
        return unavailable and not ready

    def _stream_fault(self, place: int, message: Any, body: Body) -> str | None:
        outputs = message_outputs(message.infer_response)
        return self._turns.checks[place].fault(outputs, body)


async def _connected(channel: grpc.aio.Channel) -> bool:
    """Return whether the server answers; at once where nothing listens."""
    state = channel.get_state(try_to_connect=True)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            while state is not grpc.ChannelConnectivity.READY:
                if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    return False
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
    except TimeoutError:
        return False
    return True


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _channel(target: Target) -> grpc.aio.Channel:
    credentials = grpc_credentials(target)
    if credentials is None:
        return grpc.aio.insecure_channel(target.address, options=_OPTIONS)
    return grpc.aio.secure_channel(target.address, credentials, options=_OPTIONS)


def _failure(error: Any, *, refused: bool) -> tuple[Outcome, str | None]:
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Outcome.TIMEOUT, None
    if code is grpc.StatusCode.UNAVAILABLE:
        return Outcome.ERROR, f"UNAVAILABLE: {details}"
    return _refusal(f"{code.name}: {details}", refused=refused)


def _refusal(text: str, *, refused: bool) -> tuple[Outcome, str | None]:
    """An error of the server, which is the right answer to a corrupt request."""
    return (Outcome.OK, None) if refused else (Outcome.ERROR, text)
