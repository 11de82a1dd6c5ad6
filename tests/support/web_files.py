"""Certificates and web configurations of a test's own."""

from __future__ import annotations

import ssl
import subprocess
from typing import TYPE_CHECKING, Any

from waiting import patience

if TYPE_CHECKING:
    from pathlib import Path


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["openssl", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=patience(60),
    )


def make_pair(folder: Path, name: str, issuer: str | None = None) -> None:
    """name.pem and name.key: its own authority, or signed by `issuer`."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
    san = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    signer = ["-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key"] if issuer else []
    # Python 3.13 trusts no chain without the usage.
    usage = ["-addext", "keyUsage=critical,keyCertSign,digitalSignature"]
    openssl(
        folder,
        *("req", "-x509", *key, *files, *signer, *usage, *san),
        *("-days", "2", "-subj", f"/CN={name}"),
    )


def make_pairs(folder: Path) -> None:
    """An authority, and a server and a client that it signed for."""
    make_pair(folder, "authority")
    for name in ("server", "client"):
        make_pair(folder, name, "authority")


def trusting_authority(file: Path | str | None) -> ssl.SSLContext:
    """A client's context that trusts this authority, or those of the machine."""
    return ssl.create_default_context(cafile=file)


def trusting(pairs: Path, client: str | None = None) -> ssl.SSLContext:
    """A client's context, with the certificate of that client."""
    context = trusting_authority(pairs / "authority.pem")
    if client:
        context.load_cert_chain(pairs / f"{client}.pem", pairs / f"{client}.key")
    return context


def tls_of(pairs: Path, **more: object) -> dict[str, Any]:
    """The configuration of the pair "server"."""
    return {
        "tls_server_config": {
            "cert_file": str(pairs / "server.pem"),
            "key_file": str(pairs / "server.key"),
            **more,
        }
    }
