"""A peer of the sidecar that accepts and does nothing.

The process of this host that listens at its address is stopped: the kernel takes
connections for it, and nobody reads them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from loadtests.chaos.faults.fault import SustainedFault
from loadtests.chaos.faults.needs import signalled
from loadtests.chaos.primitives.backends import listener
from loadtests.chaos.primitives.process_refs import (
    ProcessRef,
    is_stopped,
    new_token,
    resume,
    stop,
)
from loadtests.errors import FaultRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.chaos.site import Site

ADDRESS: Final = r"^(127\.[0-9.]+|localhost):[0-9]{1,5}$"
"""Addresses of loopback: a fault affects this host alone."""
_CONNECT_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.1
_HALF_REQUEST: Final = (
    "POST /v2/models/{model}/infer HTTP/1.1\r\nHost: tap\r\n"
    "Content-Type: application/json\r\nContent-Length: 65536\r\n\r\n{{"
)


class PeerFault(SustainedFault):
    """A peer that is stopped. A record without its process is of a fault's own process."""

    address: str | None = Field(default=None, pattern=ADDRESS)
    """host:port on loopback, where the target does not know it."""

    peer: ClassVar[str]
    """Name of the peer in the site."""

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the process that listens."""
        address, process = self._found(site)
        return {
            "token": new_token(),
            "address": address,
            "process": process.to_record(),
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Stop it."""
        process = _frozen(record)
        if process is None:
            super().inject(record)
        else:
            stop([process])

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report a process that is not stopped."""
        process = _frozen(record)
        if process is None:
            return super().missing(record)
        if is_stopped(process):
            return []
        return [f"process {process.pid} is not stopped"]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Resume it."""
        process = _frozen(record)
        if process is None:
            super().revert(record)
        else:
            resume([process])

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report a process that is stopped."""
        process = _frozen(record)
        if process is None:
            return super().residue(record)
        return [f"process {process.pid} is stopped"] if is_stopped(process) else []

    def _found(self, site: Site) -> tuple[str, ProcessRef]:
        address = self.address or site.peers.get(self.peer)
        if address is None:
            raise FaultRefusedError(
                f"{site.name} has no {self.peer}", "say where it is: `address`"
            )
        process = listener(address)
        if process is not None and process.pid == os.getpid():
            raise FaultRefusedError(
                f"what listens at {address} is this program itself",
                "start the experiment from another process",
            )
        if process is not None:
            return address, signalled(process, f"what listens at {address}")
        if _listens(address):
            raise FaultRefusedError(
                f"what listens at {address} is not to be seen from here",
                "run as its user or as root, on its host",
            )
        raise FaultRefusedError(
            f"nobody listens at {address}", f"start the {self.peer} first"
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
    """A stalled tap: its reader stops, or a sender in the middle of a request.

    The tap's reader is the sidecar: it is stopped as a whole, and clients that mirror to it
    must be served all the same. A sender that stops must cost the sidecar a connection for
    a while, and no more.
    """

    kind: Literal["tap_stalled"] = "tap_stalled"
    side: Literal["reader", "sender"] = Field(default="reader")
    """The side that stops: the reader of the tap, or a proxy that sends to it."""
    connections: int = Field(default=64, ge=1, le=512)
    """Connections of the sender that stops: requests started at a time."""
    model: str = Field(default="stalled", pattern=r"^[A-Za-z0-9_.-]+$", max_length=200)
    """Model name of those requests. The tap skips one without a subscriber."""

    peer: ClassVar[str] = "tap"

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the reader, or how many requests stall."""
        record = {"side": self.side, **super().prepare(site)}
        if self.side == "reader":
            return record
        half = _HALF_REQUEST.format(model=self.model)
        more = {"process": None, "connections": self.connections, "half": half}
        return record | more

    @classmethod
    def work(cls, record: dict[str, Any], ready: Callable[[], None]) -> None:
        """Start requests and finish none; replace those that are closed."""
        half = record["half"].encode()
        endpoint = _endpoint(record["address"])
        begun = [_begin(endpoint, half) for _ in range(record["connections"])]
        ready()
        while True:
            time.sleep(_POLL_SECONDS)
            for index, connection in enumerate(begun):
                if connection is None or _ended(connection):
                    if connection is not None:
                        connection.close()
                    begun[index] = _begin(endpoint, half)


def _frozen(record: dict[str, Any]) -> ProcessRef | None:
    found = record["process"]
    return None if found is None else ProcessRef.from_record(found)


def _endpoint(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _listens(address: str) -> bool:
    """Return whether any user's process listens there, without connecting to it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(_endpoint(address))
        except OSError:
            return True
    return False


def _begin(endpoint: tuple[str, int], half: bytes) -> socket.socket | None:
    """Half a request; None where it is not taken."""
    with contextlib.suppress(OSError):
        connection = socket.create_connection(endpoint, _CONNECT_SECONDS)
        connection.sendall(half)
        connection.setblocking(False)
        return connection
    return None


def _ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
