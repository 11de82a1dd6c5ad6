"""A peer of the sidecar that accepts and does nothing: frozen, or stood in for.

Where somebody on this host listens at its address that process is stopped: the kernel
takes connections for it, and nobody reads them. Where nobody listens a process of the
fault's own does so, and never answers.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from loadtests.chaos.errors import FaultRefusedError
from loadtests.chaos.faults.base import Fault
from loadtests.chaos.faults.needs import signalled
from loadtests.chaos.primitives import agents, stopping
from loadtests.chaos.primitives.backends import listener
from loadtests.chaos.primitives.processes import ProcessRef, new_token, started_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.chaos.site import Site

ADDRESS: Final = r"^(127\.[0-9.]+|localhost):[0-9]{1,5}$"
"""Of loopback: a fault touches this host alone."""
_MAX_CONNECTIONS: Final = 256
_LOOK_SECONDS: Final = 0.2
_READ_BYTES: Final = 65_536


class PeerFault(Fault):
    """What is the same for each of them."""

    address: str | None = Field(default=None, pattern=ADDRESS)
    """host:port on loopback, where the target does not know it."""
    longest_seconds: float = Field(default=600.0, gt=0, le=86_400)
    """After which a process that stands in ends by itself."""

    peer: ClassVar[str]
    """What the site calls it."""
    stands_in: ClassVar[bool] = True
    """Whether a process may take its place where it does not run."""

    def require(self, site: Site) -> None:
        """An address, and a process there that may be stopped, or nobody."""
        self._found(site)

    def prepare(self, site: Site) -> dict[str, Any]:
        """The process that listens, or the token of the one that will."""
        address, process = self._found(site)
        return {
            "token": new_token(),
            "address": address,
            "process": None if process is None else process.to_record(),
            "longest_seconds": self.longest_seconds,
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Stop it, or take its place."""
        process = _frozen(record)
        if process is None:
            agents.start(
                record["token"],
                __name__,
                record,
                longest_seconds=record["longest_seconds"],
            )
            return
        stopping.stop([process])

    def missing(self, record: dict[str, Any]) -> list[str]:
        """A process that is not stopped, or does not stand in."""
        process = _frozen(record)
        if process is not None:
            stopped = stopping.is_stopped(process)
            return [] if stopped else [f"process {process.pid} is not stopped"]
        if started_with(record["token"]):
            return []
        return [f"nobody stands in at {record['address']}"]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Let it go on, or end what stands in."""
        process = _frozen(record)
        if process is None:
            agents.stop(record["token"])
            return
        stopping.go_on([process])

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """A process that is stopped, or stands in."""
        process = _frozen(record)
        if process is not None:
            stopped = stopping.is_stopped(process)
            return [f"process {process.pid} is stopped"] if stopped else []
        return agents.left(record["token"])

    def _found(self, site: Site) -> tuple[str, ProcessRef | None]:
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
        if not self.stands_in:
            raise FaultRefusedError(
                f"nobody listens at {address}", f"start the {self.peer} first"
            )
        return address, None


class OtlpHang(PeerFault):
    """Pushes run into their deadline; nothing else of the sidecar may wait for them."""

    kind: Literal["otlp_hang"] = "otlp_hang"

    peer: ClassVar[str] = "otlp"


class PrometheusAway(PeerFault):
    """It is stopped, so no alert fires either; what it did not scrape is a gap."""

    kind: Literal["prometheus_away"] = "prometheus_away"

    peer: ClassVar[str] = "prometheus"
    stands_in: ClassVar[bool] = False


def _frozen(record: dict[str, Any]) -> ProcessRef | None:
    found = record["process"]
    return None if found is None else ProcessRef.from_record(found)


def endpoint(address: str) -> tuple[str, int]:
    """Host and port of an address."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def _listens(address: str) -> bool:
    """Return whether somebody does, of whatever user; without a word to them."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(endpoint(address))
        except OSError:
            return True
    return False


def work(settings: dict[str, Any], ready: Callable[[], None]) -> None:
    """Listen, accept, read, and never answer."""
    deadline = time.monotonic() + settings["longest_seconds"]
    with (
        selectors.DefaultSelector() as selector,
        socket.create_server(endpoint(settings["address"])) as server,
    ):
        selector.register(server, selectors.EVENT_READ)
        held: list[socket.socket] = []
        ready()
        while time.monotonic() < deadline:
            for key, _ in selector.select(_LOOK_SECONDS):
                if key.fileobj is server:
                    connection = server.accept()[0]
                    selector.register(connection, selectors.EVENT_READ)
                    held.append(connection)
                    if len(held) > _MAX_CONNECTIONS:
                        _let_go(selector, held, held[0])
                else:
                    _read(selector, held, key.fileobj)


def _read(
    selector: selectors.BaseSelector, held: list[socket.socket], connection: Any
) -> None:
    try:
        if connection.recv(_READ_BYTES):
            return
    except OSError:
        pass
    _let_go(selector, held, connection)


def _let_go(
    selector: selectors.BaseSelector,
    held: list[socket.socket],
    connection: socket.socket,
) -> None:
    selector.unregister(connection)
    held.remove(connection)
    connection.close()
