"""Deployments for chaos tests: a real Triton, a sidecar beside it, or nothing at all."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fault_cycles import Client
from monitoring import free_port

from exporter.triton import backend, keeper
from loadtests.chaos.primitives.backends import Belongings, stubs_of
from loadtests.chaos.primitives.process_refs import ProcessRef

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from sidecars import SidecarProcess

    from exporter.triton.embedded import EmbeddedTriton
    from loadtests.chaos.site import ProxyControl


_MODELS = Path(__file__).parents[1] / "data" / "models"


@dataclass
class EmbeddedSite:
    """A `loadtests.chaos.site.Site` over an EmbeddedTriton of the test's own."""

    triton: EmbeddedTriton
    beside: SidecarProcess | None = None
    """The sidecar, where the test has one that listens."""
    trace_folder: Path | None = None
    proxy: ProxyControl | None = None
    peers: Mapping[str, str] = field(default_factory=dict)
    name: str = field(default="embedded", init=False)

    @property
    def grpc(self) -> str:
        return self.triton.grpc

    @property
    def http(self) -> str:
        return self.triton.http

    @property
    def repository(self) -> Path | None:
        return self.triton.repository

    @property
    def sidecar_url(self) -> str | None:
        return f"http://127.0.0.1:{self.beside.port}" if self.beside else None

    def server(self) -> ProcessRef | None:
        return ProcessRef.of(self.triton.pid) if self.triton.running else None

    def stubs(self, model: str | None = None) -> Sequence[ProcessRef]:
        server = self.server()
        return [] if server is None else stubs_of(server, model)

    def start_again(self) -> None:
        """What a supervisor would do: a new server where there is none any more."""
        server = self.server()
        if server is None or not server.alive:
            self.triton.kill()
            self.triton.start()

    def sidecar(self) -> ProcessRef | None:
        if self.beside is None or not self.beside.running:
            return None
        return ProcessRef.of(self.beside.process.pid)


@dataclass(frozen=True)
class EmptySite:
    """Nothing but addresses, at which by default nobody listens."""

    name: str = "empty"
    grpc: str = "127.0.0.1:1"
    http: str = "127.0.0.1:1"
    repository: Path | None = None
    trace_folder: Path | None = None
    proxy: ProxyControl | None = None
    peers: Mapping[str, str] = field(default_factory=dict)
    sidecar_url: str | None = None

    def server(self) -> None:
        return None

    def stubs(self, _model: str | None = None) -> Sequence[ProcessRef]:
        return []

    def sidecar(self) -> None:
        return None


@contextlib.contextmanager
def bare_triton(environment: Path) -> Generator[BareSite]:
    """A tritonserver that nobody keeps: what its death leaves behind stays."""
    with contextlib.ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="bare-")))
        found = backend.inspect(environment)
        found.prepare(folder)
        ports = {kind: free_port() for kind in ("grpc", "http", "metrics")}
        command = [
            str(found.server),
            f"--model-repository={_MODELS}",
            f"--backend-directory={folder / 'backends'}",
            f"--backend-config=python,shm-region-prefix-name={folder.name}_",
            *(f"--{kind}-address=127.0.0.1" for kind in ports),
            *(f"--{kind}-port={port}" for kind, port in ports.items()),
            "--disable-auto-complete-config",
        ]
        settings = {**os.environ, **found.settings(folder)}
        quiet = subprocess.DEVNULL
        server = subprocess.Popen(command, env=settings, stdout=quiet, stderr=quiet)
        undo.callback(_end, server, f"{folder.name}_")
        with Client(f"127.0.0.1:{ports['http']}") as client:
            client.serves()
        yield BareSite(
            name="bare",
            grpc=f"127.0.0.1:{ports['grpc']}",
            http=f"127.0.0.1:{ports['http']}",
            pid=server.pid,
        )


def _end(server: subprocess.Popen[bytes], prefix: str) -> None:
    """Whatever a test has found of its remains, they are gone now."""
    found = ProcessRef.of(server.pid)
    belongings = None if found is None else Belongings.of(found)
    server.kill()
    server.wait()
    if belongings is not None:
        belongings.sweep()
    keeper.remove_shared_memory(prefix)


@dataclass(frozen=True)
class BareSite(EmptySite):
    """A `loadtests.chaos.site.Site` over nothing but a server's process."""

    pid: int = 0

    def server(self) -> ProcessRef | None:
        found = ProcessRef.of(self.pid)
        return found if found is not None and found.alive else None

    def stubs(self, model: str | None = None) -> Sequence[ProcessRef]:
        server = self.server()
        return [] if server is None else stubs_of(server, model)
