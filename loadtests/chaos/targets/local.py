"""A deployment on this host, found by its ports and processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loadtests.chaos.primitives.backends import listener, stubs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from loadtests.chaos.primitives.processes import ProcessRef
    from loadtests.chaos.site import ProxyControl


@dataclass
class LocalSite:
    """A `loadtests.chaos.site.Site`; filled in while the deployment comes up."""

    name: str
    grpc: str
    http: str
    metrics: str | None = None
    repository: Path | None = None
    trace_folder: Path | None = None
    proxy: ProxyControl | None = None
    sidecar_url: str | None = None
    peers: dict[str, str] = field(default_factory=dict)
    find_server: Callable[[], ProcessRef | None] | None = None
    """By default whoever listens on the HTTP port."""
    find_sidecar: Callable[[], ProcessRef | None] | None = None
    """By default whoever listens on the port of `sidecar_url`."""
    prometheus_url: str | None = None

    def server(self) -> ProcessRef | None:
        """tritonserver, as it runs now."""
        if self.find_server is not None:
            return self.find_server()
        return listener(self.http)

    def stubs(self, model: str | None = None) -> Sequence[ProcessRef]:
        """Processes of its Python backend."""
        server = self.server()
        return [] if server is None else stubs_of(server, model)

    def sidecar(self) -> ProcessRef | None:
        """The sidecar, as it runs now."""
        if self.find_sidecar is not None:
            return self.find_sidecar()
        if self.sidecar_url is None:
            return None
        return listener(self.sidecar_url.rpartition("//")[2].partition("/")[0])

    def loaded(self, protocol: str) -> str:
        """host:port where users ask: the proxy, where there is one."""
        grpc, http = self.grpc, self.http
        if self.proxy is not None:
            grpc, http = self.proxy.grpc, self.proxy.http
        return grpc if protocol == "grpc" else http
