"""TLS, mutual TLS and passwords for our own pages, in exporter-toolkit's file format.

https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
The file and what it names are looked at again as connections come, so that a renewed
certificate or a changed password needs no restart; one that is wrong changes nothing.
"""

from __future__ import annotations

import re
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import structlog
from pydantic import Field, SecretStr, field_validator, model_validator

from exporter.config import config_file
from exporter.config.config_problems import validated
from exporter.errors import ConfigError
from exporter.settings import Settings
from exporter.system import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger()

CHECK_SECONDS: Final = 1.0

Version = Literal["TLS12", "TLS13"]
ClientAuth = Literal[
    "NoClientCert",
    "RequestClientCert",
    "RequireAnyClientCert",
    "VerifyClientCertIfGiven",
    "RequireAndVerifyClientCert",
]
# Above cost 17 one check takes ten seconds.
_HASH: Final = re.compile(r"\$2[aby]\$(0[4-9]|1[0-7])\$[./A-Za-z0-9]{53}")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


class TlsServerConfig(Settings):
    """The server's certificate, and those required of clients."""

    cert_file: Path
    """Our certificate and its chain (PEM)."""
    key_file: Path
    """Private key of the certificate (PEM)."""
    client_auth_type: ClientAuth = Field(default="NoClientCert")
    """Policy for client certificates."""
    client_ca_file: Path | None = Field(default=None)
    """Authorities that may have signed a client's certificate (PEM)."""
    min_version: Version = Field(default="TLS12")
    """Oldest version spoken."""
    max_version: Version = Field(default="TLS13")
    """Newest version spoken."""
    cipher_suites: tuple[str, ...] = Field(default=())
    """OpenSSL's names of the ciphers for TLS 1.2; empty for OpenSSL's default."""

    @field_validator("client_auth_type")
    @classmethod
    def _can_be_verified(cls, value: ClientAuth) -> ClientAuth:
        if value not in _VERIFY:
            raise ValueError(
                f"found {value!r}, which accepts any certificate without verifying "
                "it; want VerifyClientCertIfGiven or RequireAndVerifyClientCert"
            )
        return value

    @model_validator(mode="after")
    def _has_authorities(self) -> TlsServerConfig:
        if (self.client_auth_type == "NoClientCert") != (self.client_ca_file is None):
            raise ValueError(
                "found only one of client_ca_file and a client_auth_type that "
                "verifies; want both or neither"
            )
        return self

    def files(self) -> tuple[Path, ...]:
        """Return the files that are read besides this one."""
        found = (self.cert_file, self.key_file, self.client_ca_file)
        return tuple(path for path in found if path is not None)

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a server.

        Raises:
            OSError: a file cannot be read, or holds no certificate or key.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self.min_version]
        context.maximum_version = _VERSIONS[self.max_version]
        if self.cipher_suites:
            context.set_ciphers(":".join(self.cipher_suites))
        context.load_cert_chain(self.cert_file, self.key_file, _no_passphrase)
        if self.client_ca_file is not None:
            context.load_verify_locations(self.client_ca_file)
        context.verify_mode = _VERIFY[self.client_auth_type]
        return context


class HttpServerConfig(Settings):
    """Headers and protocol of every answer."""

    http2: bool = Field(default=True)
    """Taken and without effect: HTTP/1.1 is spoken."""
    headers: dict[
        Literal[
            "Content-Security-Policy",
            "Strict-Transport-Security",
            "X-Content-Type-Options",
            "X-Frame-Options",
            "X-XSS-Protection",
        ],
        str,
    ] = Field(default={})
    """Security headers added to every answer."""

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, headers: dict[Any, str]) -> dict[Any, str]:
        for name, value in headers.items():
            if not _HEADER_VALUE.fullmatch(value):
                raise ValueError(
                    f"found header {name!r} with a value that cannot be sent; want "
                    "printable ASCII on one line"
                )
        return headers


def _no_passphrase() -> str:
    # Without this OpenSSL prompts at the terminal.
    raise OSError("the key has a passphrase")


class WebConfig(Settings):
    """The whole file."""

    tls_server_config: TlsServerConfig | None = Field(default=None)
    """TLS; without it plain HTTP is served."""
    http_server_config: HttpServerConfig = Field(default=HttpServerConfig())
    """HTTP itself."""
    basic_auth_users: dict[str, SecretStr] = Field(default={}, max_length=1_000)
    """bcrypt hashes of passwords by user."""

    @field_validator("basic_auth_users")
    @classmethod
    def _are_hashes(cls, users: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for user, hashed in users.items():
            if not _HASH.fullmatch(hashed.get_secret_value()):
                raise ValueError(
                    f"the password of user {user!r} is not a bcrypt hash; want one of "
                    "cost 4 to 17, as printed by `htpasswd -nBC 10 USER`"
                )
        return users

    @property
    def hashes(self) -> dict[str, str]:
        """The hashes themselves."""
        return {u: h.get_secret_value() for u, h in self.basic_auth_users.items()}


def load(path: Path) -> WebConfig:
    """The file, with its paths made relative to its own folder.

    Raises:
        ConfigError: with every problem of the file.
    """
    raw = config_file.content(path)
    # As exporter-toolkit, which knows no variables: what is in the file is what counts.
    config = validated(WebConfig, raw, str(path), {})
    tls = config.tls_server_config
    if tls is None:
        return config
    there = {
        name: path.parent / value
        for name in ("cert_file", "key_file", "client_ca_file")
        if (value := getattr(tls, name)) is not None
    }
    placed = tls.model_copy(update=there)
    try:
        for file in placed.files():
            file.open("rb").close()  # OpenSSL's errors do not name the file
        placed.context()
    except OSError as error:
        found = f"tls_server_config: {error.filename or error}: cannot be used as it is"
        raise ConfigError(str(path), [found]) from None
    return config.model_copy(update={"tls_server_config": placed})


class WebConfigFile:
    """The file as it is now, or as it was when it was last right."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._config = load(path)
        self._context = self._fresh_context()
        self._seen = self._stamps()
        self._refused = ""
        self._checked_at = clock()

    @property
    def config(self) -> WebConfig:
        """Return the configuration in force."""
        self._reload_if_changed()
        return self._config

    @property
    def context(self) -> ssl.SSLContext | None:
        """TLS as it is in force, None for plain HTTP."""
        self._reload_if_changed()
        return self._context

    def _fresh_context(self) -> ssl.SSLContext | None:
        tls = self._config.tls_server_config
        return None if tls is None else tls.context()

    def _reload_if_changed(self) -> None:
        now = self._clock()
        if now - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = now
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        before = self._config
        try:
            self._config = load(self._path)
            if (self._config.tls_server_config is None) != (self._context is None):
                self._config = before
                log.warning(
                    "web_config_needs_restart",
                    reason="TLS was turned on or off",
                )
                return
            self._context = self._fresh_context()
        except (ConfigError, OSError) as error:
            self._config = before
            # A missing file may appear without a change of the configuration file.
            self._seen = ()
            if str(error) != self._refused:
                log.warning("web_config_refused", reason=str(error))
            self._refused = str(error)
        else:
            self._refused = ""
            self._seen = self._stamps()
            log.info("web_config_reloaded", file=str(self._path))

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        tls = self._config.tls_server_config
        files = (self._path, *(tls.files() if tls else ()))
        return tuple(map(whole_file.stamp, files))
