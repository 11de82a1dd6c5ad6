"""A whole deployment for chaos tests, and how to see that nothing is left of a fault."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monitoring import free_port
from sidecars import SidecarProcess

from loadtests.chaos.primitives.backends import stubs_of
from loadtests.chaos.primitives.model_control import load, states
from loadtests.chaos.primitives.process_refs import (
    TOKEN_VARIABLE,
    ProcessRef,
    started_with,
)

if TYPE_CHECKING:
    from exporter.triton.embedded import EmbeddedTriton
    from loadtests.chaos.site import FaultProxy

MODEL = "digits_fp32"
STREAMING_MODEL = "llm"
_TOKEN = re.compile(r"tw[0-9a-f]{10}")


class Deployment:
    """Everything that a fault may want, and how to bring back what one ended."""

    def __init__(self, triton: EmbeddedTriton, proxy: FaultProxy, folder: Path) -> None:
        self.triton = triton
        self.folder = folder
        self.sidecar = self._start_sidecar()
        self.site: dict[str, Any] = {
            "name": "embedded",
            "grpc": triton.grpc,
            "http": triton.http,
            "metrics": triton.metrics,
            "repository": str(triton.repository),
            "proxy": [str(proxy.control), proxy.grpc, proxy.http, proxy.pid],
            "sidecar_url": f"http://127.0.0.1:{self.sidecar.port}",
        }

    def _start_sidecar(self) -> SidecarProcess:
        self.port, self.tap = free_port(), free_port()
        return self._sidecar_at()

    def _sidecar_at(self) -> SidecarProcess:
        target = {"grpc": self.triton.grpc, "http": self.triton.http}
        listen = {
            "address": "127.0.0.1",
            "port": self.port,
            "tap": {"port": self.tap},
        }
        # The tap listens for those who want something of it.
        taps = [{"kind": "mirror"}]
        config = {"target": target, "listen": listen, "collectors": taps}
        sidecar = SidecarProcess(config, self.folder / "sidecar")
        sidecar.wait_listening()
        return sidecar

    def close(self) -> None:
        """End what it has started, the sidecar that runs now."""
        self.sidecar.close()

    def mend(self) -> None:
        """Running and serving, whatever a fault has ended for good."""
        self.triton.start()
        for model in (MODEL, STREAMING_MODEL):
            if states(self.triton.http).get(model) != "READY":
                load(self.triton.http, model)
        if not self.sidecar.running:
            self.sidecar = self._sidecar_at()

    def wrong(self) -> list[str]:
        """What is not as before a fault, seen from outside."""
        found = []
        server = ProcessRef.of(self.triton.pid)
        if server is not None and self.triton.running:
            processes = (server, *stubs_of(server))
            stopped = [p.pid for p in processes if p.state in {"T", "t"}]
            found += [f"process {pid} is stopped" for pid in stopped]
        if (files := self._files()) != self.files:
            found.append(f"files of the models: {files}; before: {self.files}")
        return found

    def remember(self) -> None:
        """What `wrong` compares with."""
        self.files = self._files()

    def _files(self) -> list[str]:
        return sorted(path.name for path in self.triton.repository.rglob("*"))


def left_on_host(journal: str) -> list[str]:
    """What the host still has that bears a token of a journal, looked for by ourselves."""
    tokens = set(_TOKEN.findall(journal))
    found: list[str] = []
    for token in tokens:
        found += [
            f"process {p.pid} with {TOKEN_VARIABLE}={token}"
            for p in started_with(token)
        ]
    for what, text in _host().items():
        found += [f"{what}: {token}" for token in tokens if token in text]
    return found


def _host() -> dict[str, str]:
    seen = {"mount": Path("/proc/self/mounts").read_text()}
    seen["/dev/shm"] = "\n".join(path.name for path in Path("/dev/shm").iterdir())
    return seen
