"""Listening sockets and the HTTP server on them: admission, time limits, no signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from asyncio import sslproto
from typing import TYPE_CHECKING, Any, Final, cast

import uvicorn

from exporter.errors import ListenError
from exporter.network.addresses import host_port
from exporter.network.admission import EXHAUSTED, CrowdedError
from exporter.network.connections import (
    HANDSHAKE_SECONDS,
    IDLE_SECONDS,
    BoundedProtocol,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Generator, Mapping

    from exporter.network.admission import Entrance, Visitor

    Application = Callable[..., Awaitable[None]]
    LatestTls = Callable[[], ssl.SSLContext]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

_TICK_SECONDS: Final = 0.5
_ALL_OF_IPV6: Final = "::"
_ALL_OF_IPV4: Final = "0.0.0.0"  # noqa: S104 - where every address is asked for
_BACKLOG: Final = 1024
_ACCEPTED_AT_ONCE: Final = 16
"""Connections accepted at a time: few, so that a flood closes none before it is read."""
_EXHAUSTED_SECONDS: Final = 0.1
_TLS_BUFFER_BYTES: Final = 16 << 10
"""Bytes that a TLS connection reads at once: the length of its longest record."""
_PART_BYTES: Final = 64 << 10
"""Part of an answer that is buffered for a client that does not read."""


# By default each connection has a buffer of 256 KiB, and during a handshake OpenSSL keeps
# a copy of what was read into it.
sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES


async def send_answer(
    send: Send,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    is_head: bool = False,
) -> None:
    """Send an answer in parts: each waits until the client has read most of those before."""
    named = {"content-length": str(len(body)), **headers}
    encoded = [(name.encode(), value.encode()) for name, value in named.items()]
    await send(
        {"type": "http.response.start", "status": int(status), "headers": encoded}
    )
    body = b"" if is_head else body
    for start in range(0, max(len(body), 1), _PART_BYTES):
        end = start + _PART_BYTES
        part = {"body": body[start:end], "more_body": end < len(body)}
        await send({"type": "http.response.body", **part})


class Acceptor:
    """Accepts the connections of one socket through an entrance.

    asyncio's own server accepts all connections and reports one only after its TLS
    handshake, so neither could be limited by address or number.
    """

    def __init__(
        self,
        listener: socket.socket,
        entrance: Entrance,
        protocol: Callable[[Visitor], asyncio.Protocol],
        latest_tls: LatestTls | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._entrance = entrance
        self._protocol = protocol
        self._latest_tls = latest_tls
        self._connecting: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accept no more; connections that are made stay."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        for task in self._connecting:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait for handshakes to end."""
        await asyncio.gather(*self._connecting, return_exceptions=True)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, peer = self._listener.accept()
            except OSError as error:
                if error.errno in EXHAUSTED:
                    # Level-triggered: it would be called again at once, for ever.
                    self._entrance.refused["descriptors"] += 1
                    self._loop.remove_reader(self._listener)
                    self._pause = self._loop.call_later(
                        _EXHAUSTED_SECONDS, self._resume
                    )
                return
            self._admit(connection, str(peer[0]) if peer else "")

    def _admit(self, connection: socket.socket, peer: str) -> None:
        now = self._loop.time()
        try:
            visitor = self._entrance.enter(peer, now)
        except CrowdedError:
            connection.close()
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._connect(connection, visitor))
        visitor.end = task.cancel
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: socket.socket, visitor: Visitor) -> None:
        tls: dict[str, Any] = {}
        if self._latest_tls is not None:
            tls = {
                "ssl": self._latest_tls(),
                "ssl_handshake_timeout": HANDSHAKE_SECONDS,
            }
        made = False
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._protocol(visitor), connection, **tls
            )
            made = True
        except OSError:
            # Every failed handshake is one, timeouts and ssl.SSLError among them.
            self._entrance.refused["handshake"] += 1
        finally:
            if not made:
                visitor.leave()
                connection.close()


class HttpServer(uvicorn.Server):
    """uvicorn behind an entrance; signals stay with the application."""

    def __init__(
        self,
        config: uvicorn.Config,
        entrance: Entrance,
        latest_tls: LatestTls | None,
    ) -> None:
        super().__init__(config)
        self._entrance = entrance
        self._latest_tls = latest_tls

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Do nothing: cli.py handles SIGTERM, SIGINT and SIGHUP."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on the sockets."""
        self.servers = [
            cast(
                "asyncio.Server",
                Acceptor(listener, self._entrance, self._protocol, self._latest_tls),
            )
            for listener in sockets or ()
        ]
        self.started = True

    def _protocol(self, visitor: Visitor) -> asyncio.Protocol:
        made_by = self.config.http_protocol_class
        make = cast("Callable[..., asyncio.Protocol]", made_by)
        return make(
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            visitor=visitor,
        )

    async def main_loop(self) -> None:
        """Check regularly whether to end.

        uvicorn checks ten times per second, which causes more wake-ups than the rest of
        an idle sidecar, each with cold caches.
        """
        while not await self.on_tick(0):  # noqa: ASYNC110 - its flag is no event
            await asyncio.sleep(_TICK_SECONDS)


def make_server(
    application: Application,
    entrance: Entrance,
    latest_tls: LatestTls | None = None,
) -> HttpServer:
    """A server for already bound sockets, with bounded connections and shutdown.

    With `latest_tls` it speaks TLS, asking for the context at each connection.
    """
    config = uvicorn.Config(
        application,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        # A line for each malformed request would let anyone fill the log.
        log_level="error",
        timeout_graceful_shutdown=2,
        # BoundedProtocol ends idle connections.
        timeout_keep_alive=int(IDLE_SECONDS) + 5,
    )
    return HttpServer(config, entrance, latest_tls)


def bind(address: str, port: int) -> socket.socket:
    """A listening socket; an empty address is every address, of IPv6 as well.

    Raises:
        ListenError: the address is in use, not ours, or no address.
    """
    if not address and socket.has_dualstack_ipv6():
        with contextlib.suppress(ListenError):  # a host whose IPv6 is turned off
            return _bound(_ALL_OF_IPV6, port)
    return _bound(address or _ALL_OF_IPV4, port)


def _bound(address: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, where = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except (OSError, ValueError) as error:  # ValueError: what no host name can hold
        reason = getattr(error, "strerror", None) or str(error)
        raise ListenError(host_port(address, port), reason) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address == _ALL_OF_IPV6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(where)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(
            host_port(address, port), error.strerror or str(error)
        ) from None
    return listener
