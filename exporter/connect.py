"""Clients for a configured target: addresses, TLS files and headers to sockets."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import grpc

from exporter.errors import ConfigError
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient

if TYPE_CHECKING:
    from pathlib import Path

    from exporter.config import TargetSettings, TlsSettings


def grpc_client(target: TargetSettings) -> GrpcClient:
    """A client of the target's gRPC service.

    Raises:
        ConfigError: a TLS file cannot be read.
    """
    return GrpcClient(
        target.grpc,
        credentials=_grpc_credentials(target.tls) if target.tls else None,
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
        tls=_ssl_context(target.tls) if target.tls else None,
        headers=_headers(target),
        connections=8,
    )


def metrics_client(target: TargetSettings) -> HttpClient | None:
    """A client of Triton's own metrics page: plain HTTP and without our headers."""
    return None if target.metrics is None else HttpClient(target.metrics, connections=1)


def _headers(target: TargetSettings) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in target.headers.items()}


def _grpc_credentials(tls: TlsSettings) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        root_certificates=_read("ca_file", tls.ca_file),
        private_key=_read("key_file", tls.key_file),
        certificate_chain=_read("cert_file", tls.cert_file),
    )


def _ssl_context(tls: TlsSettings) -> ssl.SSLContext:
    for key in ("ca_file", "cert_file", "key_file"):
        _read(key, getattr(tls, key))
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file)
    except ssl.SSLError as error:
        raise ConfigError(
            "target.tls", [f"the files are no usable PEM: {error.reason}"]
        ) from None
    return context


def _read(key: str, path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"target.tls.{key}", [f"{path} cannot be read: {error.strerror}"]
        ) from None
