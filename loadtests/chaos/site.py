"""The deployment under experiment, as faults and probes see it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from exporter.system.local_server import SERVER
from exporter.system.processes import arguments_of
from loadtests.chaos.primitives.backends import listener, stubs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from loadtests.chaos.primitives.process_refs import ProcessRef

_IS_SIDECAR: Final = re.compile(r"(?:.*/)?tritonwatch|exporter\.cli").fullmatch


@dataclass
class Site:
    """A deployment that may be broken; filled in while it comes up.

    Its processes are searched each time: a server that was restarted is another process.
    Parts that a deployment lacks are None, and a fault that needs one is refused.
    """

    name: str
    """Name on the allow-list, like "embedded" or "process:tritonserver"."""
    grpc: str
    """host:port of Triton itself, gRPC."""
    http: str
    """host:port of Triton itself, HTTP."""
    metrics: str | None = None
    repository: Path | None = None
    """The model repository, where models may be replaced."""
    owns_repository: bool = False
    """True if the repository is the run's own, and ends with it."""
    proxy: FaultProxy | None = None
    """The TCP proxy between client and Triton, where there is one."""
    sidecar_url: str | None = None
    """URL of the sidecar's pages, like "http://127.0.0.1:8003"."""
    prometheus_url: str | None = None
    tap: str | None = None
    """host:port of the sidecar's tap, to which runs are announced."""
    find_server: Callable[[], ProcessRef | None] | None = None
    """Finds the server; by default the tritonserver that listens on the HTTP port."""
    find_sidecar: Callable[[], ProcessRef | None] | None = None
    """Finds the sidecar; by default the process that listens on the port of `sidecar_url`."""

    def server(self) -> ProcessRef | None:
        """Return tritonserver; None where it does not run, or not here."""
        if self.find_server is not None:
            return self.find_server()
        return listener(self.http, SERVER)

    def stubs(self, model: str | None = None) -> Sequence[ProcessRef]:
        """Return processes of the Python backend, all or one model's."""
        server = self.server()
        return [] if server is None else stubs_of(server, model)

    def sidecar(self) -> ProcessRef | None:
        """Return the sidecar's process; None where it does not run, or not here."""
        if self.find_sidecar is not None:
            return self.find_sidecar()
        if self.sidecar_url is None:
            return None
        found = listener(self.sidecar_url.rpartition("//")[2])
        # A proxy or the end of a tunnel may listen there.
        line = pairwise([] if found is None else arguments_of(found.pid))
        ours = any(_IS_SIDECAR(name) and then == "serve" for name, then in line)
        return found if ours else None

    def loaded(self, protocol: str) -> str:
        """Return the host:port for users' requests: the proxy, where there is one."""
        grpc, http = self.grpc, self.http
        if self.proxy is not None:
            grpc, http = self.proxy.grpc, self.proxy.http
        return grpc if protocol == "grpc" else http


@dataclass(frozen=True, slots=True)
class FaultProxy:
    """Addresses of a running fault proxy (`loadtests.chaos.network.proxy`)."""

    control: Path
    """Its Unix socket for commands."""
    grpc: str
    """host:port where it listens for Triton's gRPC port."""
    http: str
    """host:port where it listens for Triton's HTTP port."""
    pid: int
