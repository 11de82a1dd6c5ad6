"""Deployments for chaos tests: a real Triton, a sidecar beside it, or nothing at all."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fault_cycles import Client
from monitoring import free_port

from exporter.triton import backend, keeper
from loadtests.chaos.primitives.backends import Belongings
from loadtests.chaos.primitives.process_refs import ProcessRef
from loadtests.chaos.site import Site

if TYPE_CHECKING:
    from collections.abc import Generator

    from sidecars import SidecarProcess

    from exporter.triton.embedded import EmbeddedTriton


MODELS = Path(__file__).parents[1] / "data" / "models"


class EmbeddedSite(Site):
    """An EmbeddedTriton of the test's own, and the sidecar beside it, where there is one."""

    def __init__(
        self, triton: EmbeddedTriton, beside: SidecarProcess | None = None, **given: Any
    ) -> None:
        super().__init__(
            *("embedded", triton.grpc, triton.http),
            repository=triton.repository,
            sidecar_url=f"http://127.0.0.1:{beside.port}" if beside else None,
            find_server=lambda: ProcessRef.of(triton.pid) if triton.running else None,
            find_sidecar=self._sidecar,
            **given,
        )
        self.triton = triton
        self.beside = beside

    def start_again(self) -> None:
        """What a supervisor would do: a new server where there is none any more."""
        server = self.server()
        if server is None or not server.alive:
            self.triton.kill()
            self.triton.start()

    def _sidecar(self) -> ProcessRef | None:
        if self.beside is None or not self.beside.running:
            return None
        return ProcessRef.of(self.beside.process.pid)


def empty_site(*, pid: int = 0, **given: Any) -> Site:
    """Addresses at which by default nobody listens; a process may stand for the server."""

    def server() -> ProcessRef | None:
        process = ProcessRef.of(pid) if pid else None
        return process if process is not None and process.alive else None

    known = {"name": "empty", "grpc": "127.0.0.1:1", "http": "127.0.0.1:1", **given}
    return Site(**known, find_server=server)


@contextlib.contextmanager
def bare_triton(environment: Path) -> Generator[Site]:
    """A tritonserver that nobody keeps: what its death leaves behind stays."""
    with contextlib.ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="bare-")))
        found = backend.inspect(environment)
        found.prepare(folder)
        ports = {kind: free_port() for kind in ("grpc", "http", "metrics")}
        command = [
            str(found.server),
            f"--model-repository={MODELS}",
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
        yield empty_site(
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
