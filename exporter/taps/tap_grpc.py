"""The tap's gRPC listener: GRPCInferenceService as far as a mirror sends it.

Answers are empty, since mirrors ignore them. Messages are read one at a time, under
deadlines of our own, within limits on calls and bytes. The core listens on an abstract
Unix socket; TCP connections come through the entrance and are relayed to it, each from a
socket whose name holds the sender's address: calls take their places by it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import structlog

from exporter import catalogue
from exporter.network.addresses import host_port
from exporter.network.admission import CONNECTIONS, CrowdedError, Held
from exporter.network.grpc_core import grpc
from exporter.network.listening import Acceptor, bind
from exporter.samples import Sample
from exporter.system.workers import Workers
from exporter.taps.tap_relay import Relay, sender_of
from exporter.taps.tap_route import MessageRoute

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator

    from exporter.network.admission import Entrance
    from exporter.taps.tap_route import Outcome, TapRoute

log = structlog.get_logger()

MAX_STREAMS: Final = 16
"""Calls of one connection at once."""
FEW_CONNECTIONS: Final = 2
"""Connections that one address may have without waiting for others that have more."""
READ_SECONDS: Final = 10.0
"""Time from the call, or a stream's latest message, to the end of the next one."""
ANSWER_SECONDS: Final = 0.05
"""Longest wait of a sender for the result of parsing."""
BROKEN_SECONDS: Final = 0.1
"""Time after a stream's end from which it is certain that it was not cancelled."""
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
        routes: Callable[[], Iterable[TapRoute | MessageRoute]],
        entrance: Entrance,
        *,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._routes = routes
        self._entrance = entrance
        self._answer_seconds = answer_seconds
        self._route: MessageRoute | None = None
        self._servers: list[Any] = []
        self._paths = ("", "")
        """Abstract addresses (with a leading zero byte) of the Unix sockets behind: of
        the server for most senders, and of the one for senders with many connections.
        """
        self._starting: asyncio.Task[None] | None = None
        self._workers: Workers | None = None
        self._listener: socket.socket | None = None
        self._acceptor: Acceptor | None = None
        self._limit_bytes = 0
        self._outcomes: Counter[tuple[str, Outcome]] = Counter()

    @property
    def address(self) -> str | None:
        """Return the bound address as "host:port", None if it does not listen."""
        if self._listener is None:
            return None
        return host_port(*self._listener.getsockname()[:2])

    def follow(self, address: str, port: int) -> None:
        """Use the route, and listen as soon as there is one; in the event loop.

        Raises:
            ListenError: the address cannot be bound.
        """
        messages = (r for r in self._routes() if isinstance(r, MessageRoute))
        self._route = next(messages, None)
        if self._route is None:
            return
        limit = self._route.max_message_bytes
        if self._acceptor is None:
            self._listener = bind(address, port)
            self._workers = Workers(1, "tap-grpc")
            self._replace_servers(limit)
            self._acceptor = Acceptor(
                self._listener,
                self._entrance,
                lambda visitor: Relay(visitor, self._entrance, self._path),
            )
            log.info("tap_listening", address=self.address, protocol="grpc")
        elif limit > self._limit_bytes:
            # A lower limit is kept here. A higher one is the core's to know, which would
            # hold that much for each call: it is not set higher than is asked for.
            self._replace_servers(limit)

    async def _path(self, address: str) -> str:
        if self._starting is not None:
            await asyncio.shield(self._starting)
        # The core's queue of calls knows no addresses: a flood waits in one of its own.
        return self._paths[self._entrance.held_by(address) > FEW_CONNECTIONS]

    async def stop(self) -> None:
        """End the listener."""
        if self._acceptor is None or self._listener is None:
            return
        self._acceptor.close()
        await self._acceptor.wait_closed()
        self._listener.close()
        if self._starting is not None:
            await self._starting
        await asyncio.gather(*(each.stop(_STOP_SECONDS) for each in self._servers))
        if self._workers is not None:
            self._workers.close()
        self._acceptor = self._listener = None
        self._servers = []

    def _replace_servers(self, limit: int) -> None:
        """Serve new connections with another limit; the old servers' calls may end."""
        self._limit_bytes = limit
        before, self._servers = self._servers, [self._make(limit) for _ in self._paths]
        starting = self._start(self._starting, self._servers, before)
        self._starting = asyncio.create_task(starting, name="tap-grpc")

    async def _start(
        self, started: asyncio.Task[None] | None, servers: list[Any], before: list[Any]
    ) -> None:
        if started is not None:
            await started
        names = [f"tritonwatch-{secrets.token_hex(16)}" for _ in servers]
        for server, name in zip(servers, names, strict=True):
            server.add_insecure_port(f"unix-abstract:{name}")
            await server.start()
        self._paths = (f"\0{names[0]}", f"\0{names[1]}")
        await asyncio.gather(*(each.stop(_STOP_SECONDS) for each in before))

    def samples(self) -> Iterator[Sample]:
        """Yield the number of requests by source and outcome."""
        for (source, outcome), number in sorted(self._outcomes.items()):
            yield Sample(catalogue.TAP_REQUESTS, number, (source, outcome))

    def _make(self, max_message_bytes: int) -> Any:
        most = CONNECTIONS["grpc"] * MAX_STREAMS
        server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", max_message_bytes),
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", MAX_STREAMS),
                # It would refuse calls of every client.
                ("grpc.server.max_pending_requests", most),
                ("grpc.server.max_pending_requests_hard_limit", 2 * most),
                # Bytes that were not requested yet stay with their sender.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.max_metadata_size", 16 << 10),
                ("grpc.max_connection_idle_ms", 300_000),
            ),
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
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, "no collector takes requests"
            )
            return
        sender = sender_of(context.peer())
        taken = 0
        while taken != most:
            message = await self._message(route, context, sender, most)
            if message is None:
                return
            taken += 1
            outcome, reason = await self._receive(route, message, sender)
            if outcome in _CODES:
                await context.abort(_CODES[outcome], reason)
            await context.write(_EMPTY)

    async def _message(
        self, route: MessageRoute, context: Any, sender: str, most: int | None
    ) -> bytes | None:
        """The next message; None after the last."""
        message: Any = _EOF
        loop = asyncio.get_running_loop()
        patience = asyncio.timeout(READ_SECONDS)
        calls = self._entrance.calls
        # All calls here wait, so one can always be ended.
        visitor = calls.enter(sender, loop.time())
        visitor.end = lambda: patience.reschedule(loop.time())
        was_ended = False
        try:
            async with patience:
                try:
                    message = await context.read()
                finally:
                    was_ended = visitor not in calls.visitors
                    visitor.leave()
            if message is _EOF and most is None:
                # A stream may end at any time. One that is broken off is cancelled at
                # its end, or before, as the core's two events come.
                await asyncio.sleep(BROKEN_SECONDS)
                return None
        except TimeoutError:
            outcome: Outcome = "overloaded" if was_ended else "timeout"
            reason = (
                "its address has most calls, and others wait for a place"
                if was_ended
                else f"{READ_SECONDS:g} s"
            )
            self._outcomes[route.source, outcome] += 1
            await context.abort(_CODES[outcome], f"no message came: {reason}")
        except asyncio.CancelledError:
            self._outcomes[route.source, _NO_MESSAGE] += 1
            raise
        if message is _EOF:
            self._outcomes[route.source, _NO_MESSAGE] += 1
            return None
        return bytes(message)

    async def _receive(
        self, route: MessageRoute, message: bytes, sender: str
    ) -> tuple[Outcome, str]:
        # Also for a stream that continues over a reload.
        limit = min(route.max_message_bytes, (self._route or route).max_message_bytes)
        if len(message) > limit:
            self._outcomes[route.source, "too_large"] += 1
            return "too_large", f"found {len(message)} bytes; the maximum is {limit}"
        outcome, reason = route.admit(message)
        if outcome is None:
            return await self._work(route, message, sender)
        self._outcomes[route.source, outcome] += 1
        return outcome, reason

    async def _work(
        self, route: MessageRoute, message: bytes, sender: str
    ) -> tuple[Outcome, str]:
        if self._workers is None:
            return self._overloaded(route, "the tap is closing")
        held = Held(self._entrance, sender)
        try:
            held.add(len(message))
        except CrowdedError as crowded:
            return self._overloaded(route, str(crowded))
        try:
            future = self._workers.submit(
                self._entrance.parsing.run, route.process, message
            )
        except BaseException:
            held.let_go()
            raise
        future.add_done_callback(lambda done: self._worked(route, done, held))
        done, _ = await asyncio.wait({future}, timeout=self._answer_seconds)
        return future.result() if done else ("accepted", "")

    def _overloaded(self, route: MessageRoute, reason: str) -> tuple[Outcome, str]:
        self._outcomes[route.source, "overloaded"] += 1
        return "overloaded", reason

    def _worked(
        self,
        route: MessageRoute,
        done: asyncio.Future[tuple[Outcome, str]],
        held: Held,
    ) -> None:
        held.let_go()
        if not done.cancelled() and done.exception() is None:
            self._outcomes[route.source, done.result()[0]] += 1
