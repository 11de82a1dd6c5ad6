"""Clients for a configured target: addresses, TLS files and headers to sockets."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from exporter.errors import ConfigError, UnusableFileError
from exporter.network.grpc_core import grpc
from exporter.system import whole_file
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient

if TYPE_CHECKING:
    from exporter.config.configuration import TargetSettings, TlsSettings

log = structlog.get_logger()


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
        tls=_ssl_context(target.tls) if _uses(target, "http") else None,
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
        self._contents = _files(target.tls)
        self._refused = ""

    def take_up(self) -> None:
        """Read the files; new ones are used from the next connection on.

        Raises:
            ConfigError: one of them cannot be used; the clients keep the old ones.
        """
        tls = self._target.tls
        contents = _files(tls)
        if contents == self._contents:
            return
        # Both before either: a key that does not match its certificate yet.
        credentials, context = _grpc_credentials(tls), _ssl_context(tls)
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


def ssl_context(ca_file: Path | str | None = None) -> ssl.SSLContext:
    """A client's context that trusts what gRPC trusts with the same authorities.

    Raises:
        OSError: the file cannot be read, or holds no certificate.
    """
    context = ssl.create_default_context(cafile=ca_file)
    # Python 3.13 refuses authorities without an Authority Key Identifier or with key
    # usages that are not critical, which `openssl req -x509` makes. gRPC takes them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # As gRPC, which trusts an intermediate authority without its root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _uses(target: TargetSettings, protocol: str) -> bool:
    return target.tls is not None and protocol in target.tls.protocols


def _headers(target: TargetSettings) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in target.headers.items()}


def _grpc_credentials(tls: TlsSettings | None) -> grpc.ChannelCredentials:
    files = _files(tls)
    # grpc would report a broken file at the first call, and not which one it is.
    _ssl_context(tls)
    return grpc.ssl_channel_credentials(
        root_certificates=files["ca_file"] or _system_authorities(),
        private_key=files["key_file"],
        certificate_chain=files["cert_file"],
    )


def _system_authorities() -> bytes | None:
    """The system's authorities; None takes those that come with grpc."""
    file = ssl.get_default_verify_paths().cafile
    return Path(file).read_bytes() if file else None


def _ssl_context(tls: TlsSettings | None) -> ssl.SSLContext:
    _files(tls)
    ca_file, cert_file, key_file = (
        (None, None, None)
        if tls is None
        else (tls.ca_file, tls.cert_file, tls.key_file)
    )
    try:
        context = ssl_context(ca_file)
    except ssl.SSLError as error:
        raise _problem("ca_file", ca_file, _reason(error)) from None
    if cert_file is not None:
        try:
            context.load_cert_chain(cert_file, key_file, _no_passphrase)
        except ssl.SSLError as error:
            raise _problem("cert_file", cert_file, _reason(error)) from None
        except _EncryptedKeyError:
            raise _problem("key_file", key_file, "it has a passphrase") from None
    return context


class _EncryptedKeyError(Exception):
    pass


def _no_passphrase() -> str:
    # Without this OpenSSL prompts at the terminal.
    raise _EncryptedKeyError


def _files(tls: TlsSettings | None) -> dict[str, bytes | None]:
    contents: dict[str, bytes | None] = {}
    problems: list[str] = []
    for key in ("ca_file", "cert_file", "key_file"):
        path: Path | None = getattr(tls, key, None)
        try:
            contents[key] = None if path is None else whole_file.read(path, _MOST_BYTES)
        except OSError as error:
            problems += _problem(key, path, error.strerror or "unknown").problems
        except UnusableFileError as error:
            problems += _problem(key, path, str(error)).problems
    if problems:
        raise ConfigError(_SOURCE, problems)
    return contents


_MOST_BYTES: Final = 4 << 20
_SOURCE: Final = "the configuration"


def _problem(key: str, path: Path | None, reason: str) -> ConfigError:
    told = f"found {path}, which cannot be used: {reason}; want a readable PEM file"
    return ConfigError(_SOURCE, [f"target.tls.{key}: {told}"])


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "no PEM").lower().replace("_", " ")
