"""Clients for a configured target: addresses, TLS files and headers to sockets."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from exporter.config.configuration import TargetSettings, TlsSettings
from exporter.config.openai_target import OpenAiTarget, url_of
from exporter.errors import ConfigError
from exporter.network.grpc_core import grpc
from exporter.openai.openai_client import OpenAiClient
from exporter.triton import tls_files
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.access.collector_base import Server
    from exporter.config.configuration import AnyTarget, Config
    from exporter.config.openai_target import Url
    from exporter.triton.tls_files import TlsFiles

log = structlog.get_logger()

_PLACE: Final = "target.tls"


def grpc_client(target: TargetSettings) -> GrpcClient:
    """A client of the target's gRPC service.

    Raises:
        ConfigError: a TLS file cannot be read.
    """
    return GrpcClient(
        target.grpc,
        credentials=_grpc_credentials(target.tls) if _uses(target, "grpc") else None,
        headers=_headers(target),
    )


def http_client(target: TargetSettings) -> HttpClient | None:
    """A client of the target's HTTP service, or None where the config has none.

    Raises:
        ConfigError: a TLS file cannot be read.
    """
    if target.http is None:
        return None
    return HttpClient(
        target.http,
        tls=tls_files.context(target.tls, _PLACE) if _uses(target, "http") else None,
        headers=_headers(target),
        connections=8,
    )


def metrics_client(target: AnyTarget) -> HttpClient | None:
    """A client of the server's metrics page: for Triton plain HTTP without our headers."""
    if target.metrics is None:
        return None
    if isinstance(target, OpenAiTarget):
        url, main = url_of(target.metrics), url_of(target.url)
        prefix = url.path.removesuffix("/metrics")
        is_same = url.address == main.address and url.is_tls == main.is_tls
        headers = _headers(target) if is_same else {}
        return _of_url(url._replace(path=prefix), target.tls, headers, connections=1)
    return HttpClient(target.metrics, connections=1)


def clients(
    target: AnyTarget,
) -> tuple[Server, HttpClient | None, HttpClient | None]:
    """The clients of a target: the main one, HTTP beside gRPC, and the metrics page.

    Raises:
        ConfigError: a TLS file cannot be read.
    """
    if isinstance(target, OpenAiTarget):
        http = _of_url(url_of(target.url), target.tls, _headers(target), connections=8)
        server = OpenAiClient(http, target.api, target.max_tokens)
        return server, None, metrics_client(target)
    return grpc_client(target), http_client(target), metrics_client(target)


def triton(config: Config, command: str) -> TargetSettings:
    """The Triton that a command works on.

    Raises:
        ConfigError: the target is another server.
    """
    if isinstance(config.target, TargetSettings):
        return config.target
    problem = f"target.kind: found 'openai'; `{command}` needs a Triton"
    raise ConfigError("the configuration", [problem])


def _of_url(
    url: Url, tls: TlsFiles | None, headers: Mapping[str, str], *, connections: int
) -> HttpClient:
    return HttpClient(
        url.address,
        tls=tls_files.context(tls, _PLACE) if url.is_tls else None,
        headers=headers,
        connections=connections,
        prefix=url.path,
    )


class RenewedFiles:
    """Reloads the TLS files of all clients of a target when they change."""

    def __init__(self, target: AnyTarget, *clients: Server | HttpClient | None) -> None:
        self._target = target
        self._clients = clients
        self._contents = tls_files.contents(target.tls, _PLACE)
        self._refused = ""

    def reload(self) -> None:
        """Read the files; new ones are used from the next connection on.

        Raises:
            ConfigError: one of them cannot be used; the clients keep the old ones.
        """
        tls = self._target.tls
        contents = tls_files.contents(tls, _PLACE)
        if contents == self._contents:
            return
        # Both before either: a key that does not match its certificate yet.
        credentials, context = _grpc_credentials(tls), tls_files.context(tls, _PLACE)
        for client in self._clients:
            if client is None or not _uses(self._target, client.protocol):
                continue
            if isinstance(client, GrpcClient):
                client.renew(credentials)
            else:
                client.renew(context)
        self._contents, self._refused = contents, ""
        log.info("tls_files_renewed")

    def watch(self) -> None:
        """Load changed files; log once if one cannot be used."""
        try:
            self.reload()
        except ConfigError as error:
            if str(error) != self._refused:
                self._refused = str(error)
                log.warning("tls_files_refused", problems=str(error))


def _uses(target: AnyTarget, protocol: str) -> bool:
    if isinstance(target.tls, TlsSettings):
        return protocol in target.tls.protocols
    return target.tls is not None


def _headers(target: AnyTarget) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in target.headers.items()}


def _grpc_credentials(tls: TlsFiles | None) -> grpc.ChannelCredentials:
    files = tls_files.contents(tls, _PLACE)
    # grpc would report a broken file at the first call, and not which one it is.
    tls_files.context(tls, _PLACE)
    return grpc.ssl_channel_credentials(
        root_certificates=files["ca_file"] or _system_authorities(),
        private_key=files["key_file"],
        certificate_chain=files["cert_file"],
    )


def _system_authorities() -> bytes | None:
    """The system's authorities; None takes those that come with grpc."""
    file = ssl.get_default_verify_paths().cafile
    return Path(file).read_bytes() if file else None
