"""`tritonwatch serve`: the sidecar and its HTTP surface until a signal ends them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from exporter.app import Sidecar
from exporter.config import config_file, logs
from exporter.config.configuration import Config, parse
from exporter.errors import ConfigError
from exporter.network.addresses import host_port
from exporter.network.listening import bind, make_server
from exporter.system import memory
from exporter.web.routes import Surface

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Sequence
    from pathlib import Path

    from exporter.network.admission import Entrance
    from exporter.network.listening import HttpServer
    from exporter.web.web_config import WebConfigFile

log = structlog.get_logger()

# A busy thread keeps the interpreter for one switch interval; at the default 5 ms that
# shows in a probe's latency. A probe waits several times, in a flood for the event loop.
_SWITCH_INTERVAL_SECONDS: Final = 0.0001


@dataclass(frozen=True, slots=True)
class Overrides:
    """Options that override the configuration file, also after a reload."""

    addresses: Sequence[tuple[str, int]] | None = None
    """Hosts ("" for all) and ports to listen on."""
    metrics_path: str = "/metrics"
    log_level: str | None = None
    log_format: str | None = None

    def applied(self, config: Config) -> Config:
        """Return the configuration with them."""
        given = {"level": self.log_level, "format": self.log_format}
        chosen = {name: value for name, value in given.items() if value is not None}
        return config.model_copy(update={"log": config.log.model_copy(update=chosen)})


def serve(
    path: Path | None,
    overrides: Overrides,
    *,
    lifecycle: bool = False,
    web_config: Path | None = None,
) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP reads the file again.

    Raises:
        ConfigError: the file is wrong.
        ListenError: the address cannot be bound.
    """
    memory.use_few_arenas()
    file = _ConfigFile(path, overrides)
    config = file.read()
    web = None
    if web_config is not None:
        # bcrypt and ssl contexts cost memory; only where they are wanted.
        from exporter.web.web_config import WebConfigFile  # noqa: PLC0415

        web = WebConfigFile(web_config)
    logs.configure(config.log)
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    addresses = overrides.addresses or [(config.listen.address, config.listen.port)]
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(bind(host, port)) for host, port in addresses]
        asyncio.run(_serve(config, file, listeners, web, lifecycle=lifecycle))


class _ConfigFile:
    """The file that `--config` names, if it does, over all reloads."""

    def __init__(self, path: Path | None, overrides: Overrides) -> None:
        self.name = str(path) if path else None
        self.overrides = overrides
        self._path = path
        self._raw = b""
        # A push of OTLP removes the variables of its SDK.
        self._environment = dict(os.environ)

    def read(self) -> Config:
        """The configuration it holds now.

        Raises:
            ConfigError: with every problem of the file.
        """
        if self._path is None:
            return self.overrides.applied(Config())
        raw = config_file.content(self._path)
        if config_file.is_cut_off(raw, self._raw):
            problem = (
                f"found only the first {len(raw)} of {len(self._raw)} bytes of the "
                "configuration in use; the file is cut off, write it again; if it is complete, end it with "
                "a newline"
            )
            raise ConfigError(str(self._path), [problem])
        config = parse(raw, str(self._path), self._environment)
        self._raw = raw
        return self.overrides.applied(config)


async def _serve(
    config: Config,
    file: _ConfigFile,
    listeners: list[socket.socket],
    web: WebConfigFile | None,
    *,
    lifecycle: bool,
) -> None:
    sidecar = Sidecar(config)

    def reload() -> str | None:
        try:
            fresh = file.read()
            sidecar.reload(fresh)
        except ConfigError as error:
            sidecar.reload_failed()
            log.warning("reload_failed", problems=str(error))
            return str(error)
        logs.configure(fresh.log)
        log.info("reloaded", file=file.name)
        return None

    surface = Surface(
        sidecar, reload if lifecycle else None, file.overrides.metrics_path
    )
    server = _guarded(surface, sidecar.admission.web, web)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _end, server, number)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        sidecar.start()
        memory.settle()
        for listener in listeners:
            address = host_port(*listener.getsockname()[:2])
            log.info("serving", address=address, triton=config.target.address)
        _report_lost_by_restarts(config)
        await server.serve(sockets=listeners)
    finally:
        await sidecar.stop()
        log.info("stopped")


def _report_lost_by_restarts(config: Config) -> None:
    for collector in config.all_collectors():
        if collector.kind == "statistics" and collector.state_file is None:
            log.info(
                "restarts_lose_requests",
                reason="requests that Triton serves while tritonwatch restarts, and "
                "in the last seconds before a kill, are not counted; to count "
                "them, set state_file of the collector statistics",
            )


def _guarded(
    surface: Surface, entrance: Entrance, web: WebConfigFile | None
) -> HttpServer:
    if web is None:
        return make_server(surface, entrance)
    from exporter.web.basic_auth import Guard  # noqa: PLC0415 - bcrypt, only where it is wanted

    def latest() -> ssl.SSLContext:
        context = web.context
        assert context is not None  # noqa: S101 - it never goes from TLS to plain
        return context

    tls = latest if web.context is not None else None
    return make_server(Guard(surface, web, entrance), entrance, latest_tls=tls)


def _end(server: HttpServer, number: signal.Signals) -> None:
    server.should_exit = True
    log.info("stopping", signal=number.name)
