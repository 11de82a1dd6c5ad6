"""A peer of the sidecar that accepts and does nothing.

The process of this host that listens at its address is stopped: the kernel accepts
connections for it, and no process reads them.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from loadtests.chaos.faults.fault import Fault
from loadtests.chaos.faults.needs import signalled
from loadtests.chaos.primitives import programs
from loadtests.chaos.primitives.backends import listener
from loadtests.chaos.primitives.process_refs import (
    ProcessRef,
    is_stopped,
    resume,
    stop,
)
from loadtests.errors import FaultRefusedError

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

ADDRESS: Final = r"^(127\.[0-9.]+|localhost):[0-9]{1,5}$"
"""Addresses of loopback: a fault affects this host alone."""


class PeerFault(Fault):
    """A peer that is stopped."""

    address: str | None = Field(default=None, pattern=ADDRESS)
    """host:port on loopback, where the target does not know it."""

    peer: ClassVar[str]
    """Name of the peer in the site."""

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the process that listens."""
        address, process = self._found(site)
        return {"address": address, "process": process.to_record()}

    def inject(self, record: dict[str, Any]) -> None:
        """Stop it."""
        stop([ProcessRef.from_record(record["process"])])

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report a process that is not stopped."""
        process = ProcessRef.from_record(record["process"])
        return [] if is_stopped(process) else [f"process {process.pid} is not stopped"]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Resume it."""
        if record["process"] is None:
            # Of 0.1.0, where some were a process of their own.
            programs.stop(record["token"])
        else:
            resume([ProcessRef.from_record(record["process"])])

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report a process that is stopped."""
        if record["process"] is None:
            return programs.left(record["token"])
        process = ProcessRef.from_record(record["process"])
        return [f"process {process.pid} is stopped"] if is_stopped(process) else []

    def _found(self, site: Site) -> tuple[str, ProcessRef]:
        address = self.address or site.peers.get(self.peer)
        if address is None:
            raise FaultRefusedError(f"{site.name} has no {self.peer}", "set `address`")
        process = listener(address)
        if process is not None and process.pid == os.getpid():
            raise FaultRefusedError(
                f"the process that listens at {address} is this program itself",
                "start the experiment from another process",
            )
        if process is not None:
            return address, signalled(process, f"what listens at {address}")
        if _listens(address):
            raise FaultRefusedError(
                f"the process that listens at {address} is not visible",
                "run as its user or as root, on the same host",
            )
        raise FaultRefusedError(
            f"nothing listens at {address}", f"start the {self.peer} first"
        )


class OtlpHang(PeerFault):
    """A hanging OTLP collector: pushes time out; the rest of the sidecar must not wait."""

    kind: Literal["otlp_hang"] = "otlp_hang"

    peer: ClassVar[str] = "otlp"


class PrometheusAway(PeerFault):
    """A stopped Prometheus: no alert fires, and missed scrapes are a gap."""

    kind: Literal["prometheus_away"] = "prometheus_away"

    peer: ClassVar[str] = "prometheus"


class TapStalled(PeerFault):
    """A stalled tap: its reader, which is the sidecar, is stopped as a whole.

    Clients that mirror to it must still be served.
    """

    kind: Literal["tap_stalled"] = "tap_stalled"

    peer: ClassVar[str] = "tap"


def _listens(address: str) -> bool:
    """Return whether any user's process listens there, without connecting to it."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return True
    return False
