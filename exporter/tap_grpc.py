"""The tap's gRPC listener: GRPCInferenceService as far as a mirror sends it.

Answers are empty: who mirrors ignores them. Messages are taken one at a time, under
deadlines of our own, and no more of them at once than memory is meant for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import structlog

from exporter import catalogue
from exporter.errors import ListenError
from exporter.grpc_core import grpc
from exporter.health import Workers
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporter.tap_route import MessageRoute, Outcome

log = structlog.get_logger()

MAX_HELD_BYTES: Final = 32 << 20
"""Of all messages together that wait to be worked on."""
MAX_CALLS: Final = 64
"""Calls and streams open at once, each of which may hold a message that comes."""
READ_SECONDS: Final = 10.0
"""From the call, or the latest message of a stream, to the end of the next one."""
ANSWER_SECONDS: Final = 0.05
"""A sender waits no longer to be told what was wrong."""
BROKEN_SECONDS: Final = 0.1
"""From a stream's end until it is sure that nobody has broken it off."""
_STOP_SECONDS: Final = 1.0
_SERVICE: Final = "inference.GRPCInferenceService"
_EMPTY: Final = b""
"""An empty ModelInferResponse, or ModelStreamInferResponse, as it is serialised."""
# No type checker knows it.
_EOF: Final[Any] = vars(grpc.aio)["EOF"]
# Of a message over the limit the core, which refuses it unread, tells us no more than of
# a sender that gave up: the end of the call, as an end of reading or as a cancellation,
# whichever comes first.
_NO_MESSAGE: Final[Outcome] = "too_large_or_aborted"
_CODES: Final[dict[Outcome, grpc.StatusCode]] = {
    "malformed": grpc.StatusCode.INVALID_ARGUMENT,
    "unsupported": grpc.StatusCode.INVALID_ARGUMENT,
    "overloaded": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "too_large": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "timeout": grpc.StatusCode.DEADLINE_EXCEEDED,
}


class GrpcTap:
    """Listens while a collector takes messages."""

    def __init__(
        self,
        route: Callable[[], MessageRoute | None],
        *,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._routes = route
        self._answer_seconds = answer_seconds
        self._route: MessageRoute | None = None
        self._server: Any = None
        self._starting: asyncio.Task[None] | None = None
        self._workers: Workers | None = None
        self._limit_bytes = 0
        self._open = 0
        self._held_bytes = 0
        self._outcomes: Counter[tuple[str, Outcome]] = Counter()
        self.address: str | None = None

    def follow(self, address: str, port: int) -> None:
        """Take over the route, and listen as soon as there is one; in the event loop.

        Raises:
            ListenError: the address cannot be bound.
        """
        self._route = self._routes()
        if self._route is None:
            return
        limit = self._route.max_message_bytes
        if self._server is not None:
            # A lower limit is kept here. A higher one is the core's to know, which would
            # hold that much for each call: it is not set higher than is asked for.
            if limit > self._limit_bytes and self._starting is not None:
                self._limit_bytes = limit
                renewing = self._renew(self._starting, limit)
                self._starting = asyncio.create_task(renewing, name="tap-grpc")
            return
        self._limit_bytes = limit
        server = self._make(limit)
        where = f"[{address}]" if ":" in address else address
        try:
            bound = server.add_insecure_port(f"{where}:{port}")
        except RuntimeError:
            bound = 0
        if not bound:
            raise ListenError(f"{address}:{port}", "it is in use, or not ours")
        self._starting = asyncio.create_task(server.start(), name="tap-grpc")
        self._workers = Workers(1, "tap-grpc")
        self._server, self.address = server, f"{where}:{bound}"
        log.info("tap_listening", address=self.address, protocol="grpc")

    async def stop(self) -> None:
        """End the listener."""
        if self._starting is None:
            return
        await self._starting
        server, self._server, self._starting = self._server, None, None
        if server is not None:
            await server.stop(_STOP_SECONDS)
        if self._workers is not None:
            self._workers.close()

    async def _renew(self, before: asyncio.Task[None], limit: int) -> None:
        """Listen at the same address with another limit."""
        await before
        if self._server is None:
            return
        await self._server.stop(_STOP_SECONDS)
        self._server = self._make(limit)
        try:
            self._server.add_insecure_port(self.address)
            await self._server.start()
        except RuntimeError as error:
            log.warning("tap_not_listening", address=self.address, reason=str(error))
            self._server = None

    def samples(self) -> Iterator[Sample]:
        """What was taken and what was not, by source and outcome."""
        for (source, outcome), number in sorted(self._outcomes.items()):
            yield Sample(catalogue.TAP_REQUESTS, number, (source, outcome))

    def _make(self, max_message_bytes: int) -> Any:
        server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", max_message_bytes),
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", MAX_CALLS),
                # Bytes that nobody has asked for yet stay with their sender.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.max_metadata_size", 16 << 10),
                ("grpc.max_connection_idle_ms", 300_000),
            ),
            maximum_concurrent_rpcs=4 * MAX_CALLS,
        )
        # As streams both: the same on the wire, and each message is read under a
        # deadline. A call whose message never comes would be held for ever.
        handlers = {
            "ModelInfer": grpc.stream_stream_rpc_method_handler(self._call),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._stream),
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, handlers),)
        )
        return server

    async def _call(self, _: Any, context: Any) -> None:
        """One message, one answer."""
        await self._serve(context, most=1)

    async def _stream(self, _: Any, context: Any) -> None:
        """An answer for each message."""
        await self._serve(context, most=None)

    async def _serve(self, context: Any, most: int | None) -> None:
        route = self._route
        if route is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "nobody looks at requests")
            return
        if self._open >= MAX_CALLS:
            self._outcomes[route.source, "overloaded"] += 1
            await context.abort(_CODES["overloaded"], "too many calls are open")
        self._open += 1
        try:
            taken = 0
            while taken != most:
                message = await self._message(route, context, most)
                if message is None:
                    return
                taken += 1
                outcome, reason = await self._take(route, message)
                if outcome in _CODES:
                    await context.abort(_CODES[outcome], reason)
                await context.write(_EMPTY)
        finally:
            self._open -= 1

    async def _message(
        self, route: MessageRoute, context: Any, most: int | None
    ) -> bytes | None:
        """The next message; None after the last."""
        message: Any = _EOF
        try:
            async with asyncio.timeout(READ_SECONDS):
                message = await context.read()
            if message is _EOF and most is None:
                # A stream may end at any time. One that is broken off is cancelled at
                # its end, or before, as the core's two events come.
                await asyncio.sleep(BROKEN_SECONDS)
                return None
        except TimeoutError:
            self._outcomes[route.source, "timeout"] += 1
            await context.abort(
                _CODES["timeout"], f"no message came within {READ_SECONDS:g} s"
            )
        except asyncio.CancelledError:
            self._outcomes[route.source, _NO_MESSAGE] += 1
            raise
        if message is _EOF:
            self._outcomes[route.source, _NO_MESSAGE] += 1
            return None
        return bytes(message)

    async def _take(self, route: MessageRoute, message: bytes) -> tuple[Outcome, str]:
        # Of a stream that goes on over a reload, too.
        limit = min(route.max_message_bytes, (self._route or route).max_message_bytes)
        if len(message) > limit:
            self._outcomes[route.source, "too_large"] += 1
            return "too_large", f"found {len(message)} bytes; at most {limit} are taken"
        outcome, reason = route.admit(message)
        if outcome is None:
            return await self._work(route, message)
        self._outcomes[route.source, outcome] += 1
        return outcome, reason

    async def _work(self, route: MessageRoute, message: bytes) -> tuple[Outcome, str]:
        size = len(message)
        if self._workers is None or self._held_bytes + size > MAX_HELD_BYTES:
            self._outcomes[route.source, "overloaded"] += 1
            return "overloaded", "too many messages wait to be read"
        self._held_bytes += size
        future = self._workers.submit(route.take, message)
        future.add_done_callback(lambda done: self._worked(route, size, done))
        done, _ = await asyncio.wait({future}, timeout=self._answer_seconds)
        return future.result() if done else ("accepted", "")

    def _worked(
        self, route: MessageRoute, size: int, done: asyncio.Future[tuple[Outcome, str]]
    ) -> None:
        self._held_bytes -= size
        if not done.cancelled() and done.exception() is None:
            self._outcomes[route.source, done.result()[0]] += 1
