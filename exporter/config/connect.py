"""Clients for a configured target: addresses, TLS files and headers to sockets."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from exporter.errors import ConfigError
from exporter.network.grpc_core import grpc
from exporter.triton import tls_files
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient

if TYPE_CHECKING:
    from exporter.config.configuration import TargetSettings, TlsSettings

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


def metrics_client(target: TargetSettings) -> HttpClient | None:
    """A client of Triton's own metrics page: plain HTTP and without our headers."""
    return None if target.metrics is None else HttpClient(target.metrics, connections=1)


class RenewedFiles:
    """Reloads the TLS files of both clients of a target when they change."""

    def __init__(
        self, target: TargetSettings, grpc: GrpcClient, http: HttpClient | None
    ) -> None:
        self._target = target
        self._grpc = grpc
        self._http = http
        self._contents = tls_files.contents(target.tls, _PLACE)
        self._refused = ""

    def take_up(self) -> None:
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
        if _uses(self._target, "grpc"):
            self._grpc.renew(credentials)
        if _uses(self._target, "http") and self._http is not None:
            self._http.renew(context)
        self._contents, self._refused = contents, ""
        log.info("tls_files_renewed")

    def watch(self) -> None:
        """Load changed files; log once if one cannot be used."""
        try:
            self.take_up()
        except ConfigError as error:
            if str(error) != self._refused:
                self._refused = str(error)
                log.warning("tls_files_refused", problems=str(error))


def _uses(target: TargetSettings, protocol: str) -> bool:
    return target.tls is not None and protocol in target.tls.protocols


def _headers(target: TargetSettings) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in target.headers.items()}


def _grpc_credentials(tls: TlsSettings | None) -> grpc.ChannelCredentials:
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
