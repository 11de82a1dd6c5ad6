"""The deployment under experiment, as faults and probes see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from loadtests.chaos.primitives.processes import ProcessRef


class Site(Protocol):
    """A deployment that may be broken: a server, perhaps its sidecar, on this host.

    Looked at anew each time: a server that was restarted is another process. What a
    deployment does not have is None, and a fault that needs it refuses.
    """

    @property
    def name(self) -> str:
        """What the allow-list calls it, like "embedded" or "process:tritonserver"."""
        ...

    @property
    def grpc(self) -> str:
        """host:port of Triton itself, gRPC."""
        ...

    @property
    def http(self) -> str:
        """host:port of Triton itself, HTTP."""
        ...

    @property
    def repository(self) -> Path | None:
        """The model repository, where models may be replaced."""
        ...

    @property
    def trace_folder(self) -> Path | None:
        """Where Triton writes trace files; a volume of its own where that is possible."""
        ...

    @property
    def proxy(self) -> ProxyControl | None:
        """The TCP proxy between client and Triton, where there is one."""
        ...

    @property
    def sidecar_url(self) -> str | None:
        """Of the sidecar's pages, like "http://127.0.0.1:8003"."""
        ...

    @property
    def peers(self) -> Mapping[str, str]:
        """host:port of what the sidecar talks to, where there is one on this host.

        By name: "otlp" (the collector that it pushes to), "tap" (its own, for mirrored
        requests), "prometheus" (which scrapes it).
        """
        ...

    def server(self) -> ProcessRef | None:
        """tritonserver; None where it does not run, or not here."""
        ...

    def stubs(self, model: str | None = None) -> Sequence[ProcessRef]:
        """Processes of the Python backend, all or one model's."""
        ...

    def sidecar(self) -> ProcessRef | None:
        """The sidecar's process."""
        ...


@dataclass(frozen=True, slots=True)
class ProxyControl:
    """How a running fault proxy (`loadtests.chaos.network.proxy`) is told what to do."""

    control: Path
    """Its Unix socket."""
    grpc: str
    """host:port where it listens for Triton's gRPC port."""
    http: str
    """host:port where it listens for Triton's HTTP port."""
