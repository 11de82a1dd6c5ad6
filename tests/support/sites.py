"""Deployments for chaos tests: a real Triton, a sidecar beside it, or nothing at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loadtests.chaos.backends import stubs_of
from loadtests.chaos.processes import ProcessRef

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sidecars import SidecarProcess

    from exporter.triton.embedded import EmbeddedTriton
    from loadtests.chaos.site import ProxyControl


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
