"""A real nginx that ends TLS in front of a Triton, and who signs for it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

from monitoring import free_port
from proxies import NginxProcess
from waiting import patience

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SOUND = "DNS:localhost,IP:127.0.0.1"


class Authority:
    """Signs certificates; who trusts it has `file`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.file = folder / "authority.pem"
        self._openssl(
            *("req", "-x509", *self._key("authority"), "-out", "authority.pem"),
            *("-days", "2", "-subj", "/CN=authority"),
        )

    def sign(self, name: str, *, names: str = SOUND, days: int = 2) -> Path:
        """`name`.pem, with `name`.key beside it; of negative `days` it has expired."""
        self._openssl(
            *("req", *self._key(name), "-out", f"{name}.csr", "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName={names}"),
        )
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem"),
            *("-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial"),
            *("-days", str(days), "-copy_extensions", "copy"),
        )
        return self._folder / f"{name}.pem"

    def _key(self, name: str) -> tuple[str, ...]:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        return (*curve, "-nodes", "-keyout", f"{name}.key")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(
            ["openssl", *arguments],
            cwd=self._folder,
            check=True,
            capture_output=True,
            timeout=patience(60),
        )


class Terminator(NginxProcess):
    """nginx with a port for HTTP and one for gRPC for each certificate."""

    def __init__(
        self,
        folder: Path,
        triton: Any,
        certificates: Mapping[str, Path],
        client_authority: Path | None = None,
    ) -> None:
        folder.mkdir(parents=True)
        self._ports = {
            (name, protocol): free_port()
            for name in certificates
            for protocol in ("http", "grpc")
        }
        servers = "\n".join(
            _server(port, certificates[name], protocol, client_authority)
            for (name, protocol), port in self._ports.items()
        )
        super().__init__(
            folder,
            "client_max_body_size 0;\n"
            f"upstream http_triton {{ server {triton.http}; keepalive 16; }}\n"
            f"upstream grpc_triton {{ server {triton.grpc}; keepalive 16; }}\n{servers}",
            *self._ports.values(),
        )

    def port(self, certificate: str, protocol: str) -> int:
        """Where it shows this certificate."""
        return self._ports[certificate, protocol]


def _server(
    port: int, certificate: Path, protocol: str, client_authority: Path | None
) -> str:
    if protocol == "grpc":
        listen, forward = "ssl http2", "grpc_pass grpc://grpc_triton;"
    else:
        listen = "ssl"
        forward = (
            "proxy_pass http://http_triton; proxy_http_version 1.1; "
            'proxy_set_header Connection "";'
        )
    mutual = (
        f"ssl_client_certificate {client_authority}; ssl_verify_client on;\n"
        if client_authority
        else ""
    )
    return (
        f"server {{ listen 127.0.0.1:{port} {listen};\n"
        f"ssl_certificate {certificate};\n"
        f"ssl_certificate_key {certificate.with_suffix('.key')};\n"
        f"{mutual}location / {{ {forward} }} }}"
    )
