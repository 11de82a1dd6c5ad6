"""Sidecars to be attacked: everything that listens is on, beside a scripted Triton."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import bcrypt
import yaml
from attacks import Target, basic
from fake_triton import FakeModel, FakeTriton
from honest_clients import Reader
from monitoring import free_port
from sidecars import SidecarProcess
from web_files import make_pairs, tls_of, trusting

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

_PASSWORD: Final = "correct horse battery staple"  # noqa: S105 - of these sidecars alone
_BCRYPT_COST: Final = 10


@dataclass(frozen=True)
class Attacked:
    """A sidecar, how strangers reach it, and how it is read."""

    name: str
    target: Target
    reader: Reader
    process: SidecarProcess | None = None
    """None for one that somebody else runs."""

    @property
    def resident_bytes(self) -> float:
        """Of the process now."""
        assert self.process is not None
        return self.process.resident_bytes


@contextlib.contextmanager
def attacked(
    folder: Path, *, tls: bool, within: Sequence[str] = ()
) -> Generator[Attacked]:
    """With `tls` its pages want a client's certificate and a password.

    Strangers have such a certificate, and no password.
    """
    with FakeTriton([FakeModel("m")]) as fake:
        tap, grpc = free_port(), free_port()
        arguments, security = _security(folder) if tls else ([], {})
        config = _config(fake, tap, grpc)
        process = SidecarProcess(config, folder, *arguments, within=within)
        try:
            process.wait_listening()
            web = ("127.0.0.1", process.port)
            files = ("authority.pem", "client.pem", "client.key") if tls else ()
            yield Attacked(
                "mTLS and password" if tls else "plain HTTP",
                Target(
                    (*web, *(str(folder / each) for each in files)),
                    ("127.0.0.1", tap),
                    ("127.0.0.1", grpc),
                ),
                Reader(web, **security),
                process,
            )
            assert process.running, process.log[-2000:]
        finally:
            process.close()


def _security(folder: Path) -> tuple[list[str], dict[str, Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    make_pairs(folder)
    hashed = bcrypt.hashpw(_PASSWORD.encode(), bcrypt.gensalt(_BCRYPT_COST)).decode()
    asked = {
        "client_auth_type": "RequireAndVerifyClientCert",
        "client_ca_file": str(folder / "authority.pem"),
    }
    file = folder / "web.yaml"
    web = {**tls_of(folder, **asked), "basic_auth_users": {"prometheus": hashed}}
    file.write_text(yaml.safe_dump(web), "utf-8")
    reading = {
        "tls": trusting(folder, "client"),
        "authorization": basic("prometheus", _PASSWORD),
    }
    return ["--web.config.file", str(file)], reading


def _config(fake: FakeTriton, tap: int, grpc: int) -> dict[str, Any]:
    every = {"interval_seconds": 0.5}
    signal = {"name": "up", "metric": "triton_up", "every_seconds": 1}
    return {
        "target": {"grpc": fake.grpc, "http": fake.http, "metrics": fake.metrics},
        "listen": {
            "address": "127.0.0.1",
            "port": 0,
            "tap": {"port": tap, "grpc_port": grpc},
        },
        "collectors": [
            *({"kind": kind, **every} for kind in ("server", "statistics")),
            {"kind": "process", "interval_seconds": 2},
            {"kind": "traces"},
            {"kind": "mirror", "grpc": True},
            {"kind": "runs"},
            {"kind": "spc", "signals": [signal]},
        ],
        "probes": [{"kind": "synthetic", "interval_seconds": 0.5}],
        "drift": [{"models": "m", "learn": {"rows": 500}}],
        "power": None,
    }
