"""Listening sockets and the HTTP server on them: bounded, and deaf to signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final, cast

import uvicorn

from exporter.connections import (
    HANDSHAKE_SECONDS,
    IDLE_SECONDS,
    MAX_CONNECTIONS,
    BoundedProtocol,
    Handshakes,
)
from exporter.errors import ListenError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    Application = Callable[..., Awaitable[None]]

_LOOK_SECONDS: Final = 0.5


class HttpServer(uvicorn.Server):
    """uvicorn that leaves the signals to the application."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Do nothing: SIGTERM, SIGINT and SIGHUP are handled in one place, cli.py."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on the sockets; uvicorn's own sets TLS handshakes no limit."""
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if self.config.ssl is not None:
            tls = {"ssl": self.config.ssl, "ssl_handshake_timeout": HANDSHAKE_SECONDS}
        self.servers = [
            await loop.create_server(self._protocol, sock=listener, **tls)
            for listener in sockets or ()
        ]
        self.started = True

    def _protocol(self) -> asyncio.Protocol:
        made_by = self.config.http_protocol_class
        make = cast("Callable[..., asyncio.Protocol]", made_by)
        return make(
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )

    async def main_loop(self) -> None:
        """Look now and then whether to end.

        uvicorn looks ten times a second: more wake-ups than all the rest of an idle
        sidecar has, and on an idle core each of them finds its caches cold.
        """
        while not await self.on_tick(0):  # noqa: ASYNC110 - its flag is no event
            await asyncio.sleep(_LOOK_SECONDS)


class _LatestContext(ssl.SSLContext):
    """Hands each new connection to the context that is in force when it comes."""

    latest: Callable[[], ssl.SSLContext]

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """As the latest context would; asyncio asks for no more than this."""
        return self.latest().wrap_bio(*args, **kwargs)


def make_server(
    application: Application,
    protocol: Callable[..., Any] = BoundedProtocol,
    latest_tls: Callable[[], ssl.SSLContext] | None = None,
) -> HttpServer:
    """A server for already bound sockets, with bounded connections and shutdown.

    With `latest_tls` it speaks TLS, asking for the context at each connection.
    """
    server = HttpServer(
        uvicorn.Config(
            application,
            # Any factory will do, whatever uvicorn's types say.
            http=cast("type[BoundedProtocol]", protocol),
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            # A line for each request that is none would let anyone fill the log.
            log_level="error",
            timeout_graceful_shutdown=2,
            # BoundedProtocol ends what idles.
            timeout_keep_alive=int(IDLE_SECONDS) + 5,
        )
    )
    if latest_tls is not None:
        server.config.http = cast("type[BoundedProtocol]", Handshakes())
        server.config.load()
        context = _LatestContext(ssl.PROTOCOL_TLS_SERVER)
        context.latest = latest_tls
        server.config.ssl = context
    return server


def bind(address: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        ListenError: the address is in use, not ours, or no address.
    """
    try:
        family, kind, proto, _, where = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except (OSError, ValueError) as error:  # ValueError: what no host name can hold
        reason = getattr(error, "strerror", None) or str(error)
        raise ListenError(f"{address}:{port}", reason) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(MAX_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise ListenError(f"{address}:{port}", error.strerror or str(error)) from None
    return listener
