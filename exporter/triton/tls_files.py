"""TLS files of a client: read with checks, and made into a context."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from pydantic import Field, model_validator

from exporter.errors import ConfigError, UnusableFileError
from exporter.settings import Settings
from exporter.system import whole_file


class TlsFiles(Settings):
    """TLS towards a server.

    Without `ca_file`, the certificate authorities of the system are trusted.
    """

    ca_file: Path | None = Field(default=None)
    """Certificate authorities that may have signed the server's certificate (PEM)."""
    cert_file: Path | None = Field(default=None)
    """Our certificate, for mutual TLS (PEM)."""
    key_file: Path | None = Field(default=None)
    """Our key, for mutual TLS (PEM)."""

    @model_validator(mode="after")
    def _paired(self) -> TlsFiles:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError(
                "found only one of cert_file and key_file; mutual TLS needs both"
            )
        return self


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


def context(tls: TlsFiles | None, place: str) -> ssl.SSLContext:
    """Return a context with these files; `place` is where the configuration has them.

    Raises:
        ConfigError: one of them cannot be used.
    """
    contents(tls, place)
    ca_file, cert_file, key_file = (
        (None, None, None)
        if tls is None
        else (tls.ca_file, tls.cert_file, tls.key_file)
    )
    try:
        made = ssl_context(ca_file)
    except ssl.SSLError as error:
        raise _problem(place, "ca_file", ca_file, _reason(error)) from None
    if cert_file is not None:
        try:
            made.load_cert_chain(cert_file, key_file, _no_passphrase)
        except ssl.SSLError as error:
            raise _problem(place, "cert_file", cert_file, _reason(error)) from None
        except _EncryptedKeyError:
            raise _problem(place, "key_file", key_file, "it has a passphrase") from None
    return made


class _EncryptedKeyError(Exception):
    pass


def _no_passphrase() -> str:
    # Without this OpenSSL prompts at the terminal.
    raise _EncryptedKeyError


def contents(tls: TlsFiles | None, place: str) -> dict[str, bytes | None]:
    """Return the content of each file by its setting's name.

    Raises:
        ConfigError: one of them cannot be read.
    """
    found: dict[str, bytes | None] = {}
    problems: list[str] = []
    for key in ("ca_file", "cert_file", "key_file"):
        path: Path | None = getattr(tls, key, None)
        try:
            found[key] = None if path is None else whole_file.read(path, _MOST_BYTES)
        except OSError as error:
            problems += _problem(place, key, path, error.strerror or "unknown").problems
        except UnusableFileError as error:
            problems += _problem(place, key, path, str(error)).problems
    if problems:
        raise ConfigError(_SOURCE, problems)
    return found


_MOST_BYTES: Final = 4 << 20
_SOURCE: Final = "the configuration"


def _problem(place: str, key: str, path: Path | None, reason: str) -> ConfigError:
    problem = f"found {path}, which cannot be used: {reason}; want a readable PEM file"
    return ConfigError(_SOURCE, [f"{place}.{key}: {problem}"])


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "no PEM").lower().replace("_", " ")
