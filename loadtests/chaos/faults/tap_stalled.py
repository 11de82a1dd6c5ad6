"""Mirrored requests stand still on their way to the tap."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from loadtests.chaos.errors import FaultRefusedError
from loadtests.chaos.faults.peers import PeerFault, endpoint
from loadtests.chaos.primitives import agents
from loadtests.chaos.primitives.processes import new_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.chaos.site import Site

_CONNECT_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.1
_HALF_REQUEST: Final = (
    "POST /v2/models/{model}/infer HTTP/1.1\r\nHost: tap\r\n"
    "Content-Type: application/json\r\nContent-Length: 65536\r\n\r\n{{"
)


class TapStalled(PeerFault):
    """The reader stops, or the sender does in the middle of a request.

    The tap's reader is the sidecar: it is stopped as a whole, and whoever mirrors to it
    must go on serving. A sender that stops must cost the sidecar a connection for a
    while, and no more.
    """

    kind: Literal["tap_stalled"] = "tap_stalled"
    side: Literal["reader", "sender"] = Field(default="reader")
    """Who stops: what listens on the tap, or a proxy that sends to it."""
    connections: int = Field(default=64, ge=1, le=512)
    """Of the sender that stops: so many requests are begun at a time."""
    model: str = Field(default="stalled", pattern=r"^[A-Za-z0-9_.-]+$", max_length=200)
    """Whose requests those are. The tap passes over one that nobody looks at."""

    strength: ClassVar[str | None] = "connections"
    peer: ClassVar[str] = "tap"

    def require(self, site: Site) -> None:
        """An address; and somebody who listens there, if the sender is to stop."""
        address, process = self._found(site)
        if self.side == "sender" and process is None:
            raise FaultRefusedError(f"nobody listens at {address}", "start the sidecar")

    def prepare(self, site: Site) -> dict[str, Any]:
        """The reader, or how many requests stand still."""
        if self.side == "reader":
            return {"side": "reader", **super().prepare(site)}
        self.require(site)
        return {
            "side": "sender",
            "token": new_token(),
            "address": self._found(site)[0],
            "process": None,
            "connections": self.connections,
            "half": _HALF_REQUEST.format(model=self.model),
            "longest_seconds": self.longest_seconds,
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Stop the reader, or send halves of requests."""
        if record["side"] == "reader":
            super().inject(record)
            return
        agents.start(
            record["token"],
            __name__,
            record,
            longest_seconds=record["longest_seconds"],
        )


def work(settings: dict[str, Any], ready: Callable[[], None]) -> None:
    """Begin requests and finish none; begin another where one is ended."""
    deadline = time.monotonic() + settings["longest_seconds"]
    host, port = endpoint(settings["address"])
    half = settings["half"].encode()
    begun = [_begin(host, port, half) for _ in range(settings["connections"])]
    ready()
    while time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        for index, connection in enumerate(begun):
            if connection is None or _ended(connection):
                if connection is not None:
                    connection.close()
                begun[index] = _begin(host, port, half)


def _begin(host: str, port: int, half: bytes) -> socket.socket | None:
    """Half a request; None where it is not taken."""
    with contextlib.suppress(OSError):
        connection = socket.create_connection((host, port), _CONNECT_SECONDS)
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
