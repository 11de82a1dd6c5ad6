"""The process of a Triton on this machine: with its start time, an identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from exporter import errors
from exporter.system import processes

SERVER: Final = "tritonserver"


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A process that no other one is, as long as the machine runs."""

    pid: int
    started_at: int
    """Clock ticks from boot."""


class LocalServer:
    """Finds the server at "host:port" in /proc, where that is this machine's loopback.

    Only a process called tritonserver that alone listens on the port is the server: a
    proxy or a port forwarded from elsewhere is not.
    """

    def __init__(self, address: str) -> None:
        port = address.rpartition(":")[2]
        self._port = (
            int(port) if processes.is_local(address) and port.isdigit() else None
        )
        self._known: ServerProcess | None = None

    def process(self) -> ServerProcess | None:
        """The server now; None where it is not seen. Searches /proc when it has ended."""
        if self._port is None:
            return None
        known = self._known
        if known is None or processes.started_at(known.pid) != known.started_at:
            self._known = _found(self._port)
        return self._known


def _found(port: int) -> ServerProcess | None:
    listening = processes.listening_on(port, SERVER)
    # A backend's process holds the server's sockets until it becomes its own program.
    servers = [pid for pid in listening if processes.parent_of(pid) not in listening]
    if len(servers) != 1:
        return None
    [pid] = servers
    started_at = processes.started_at(pid)
    return None if started_at is None else ServerProcess(pid, started_at)


def same_process(
    before: ServerProcess | None, after: ServerProcess | None
) -> ServerProcess | None:
    """Return the server that answered all reads between the two, if it is known.

    Raises:
        UnavailableError: the server was replaced meanwhile, so it is unknown which one answered.
    """
    if before is None or after is None:
        return None
    if before != after:
        raise errors.UnavailableError(
            "the server was replaced while its statistics were read; the next read is "
            "used"
        )
    return before
