"""Clients for a configured target: addresses, TLS files and headers to sockets."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from exporter.errors import ConfigError
from exporter.grpc_core import grpc
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
    files = _files(tls)
    # grpc would find out about a broken file at the first call, and not say which.
    _ssl_context(tls)
    return grpc.ssl_channel_credentials(
        root_certificates=files["ca_file"],
        private_key=files["key_file"],
        certificate_chain=files["cert_file"],
    )


def _ssl_context(tls: TlsSettings) -> ssl.SSLContext:
    _files(tls)
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except ssl.SSLError as error:
        raise _problem("ca_file", tls.ca_file, _reason(error)) from None
    if tls.cert_file is not None:
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file, _no_passphrase)
        except ssl.SSLError as error:
            raise _problem("cert_file", tls.cert_file, _reason(error)) from None
        except _EncryptedKeyError:
            raise _problem("key_file", tls.key_file, "it has a passphrase") from None
    return context


class _EncryptedKeyError(Exception):
    pass


def _no_passphrase() -> str:
    # Without this OpenSSL asks whoever sits at the terminal.
    raise _EncryptedKeyError


def _files(tls: TlsSettings) -> dict[str, bytes | None]:
    contents: dict[str, bytes | None] = {}
    problems: list[str] = []
    for key in ("ca_file", "cert_file", "key_file"):
        path: Path | None = getattr(tls, key)
        try:
            contents[key] = None if path is None else path.read_bytes()
        except OSError as error:
            problems += _problem(key, path, error.strerror or "unknown").problems
    if problems:
        raise ConfigError(_SOURCE, problems)
    return contents


_SOURCE: Final = "the configuration"


def _problem(key: str, path: Path | None, reason: str) -> ConfigError:
    told = f"found {path}, which cannot be used: {reason}; want a readable PEM file"
    return ConfigError(_SOURCE, [f"target.tls.{key}: {told}"])


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "no PEM").lower().replace("_", " ")
