"""An HTTP/2 connection's two sides in a test: frames as bytes, what is written, who waits."""

from __future__ import annotations

import asyncio

from loadtests.engine.http2 import Http2Connection
from loadtests.engine.senders import Keeping


def frame(kind, flags, number, content=b"") -> bytes:
    head = len(content).to_bytes(3, "big") + bytes([kind, flags])
    return head + number.to_bytes(4, "big") + content


class Waiting:
    """Keeps the answer's content, or why there is none."""

    path = None

    def __init__(self) -> None:
        self.told: list[object] = []

    def queued(self) -> None:
        """It waits for a free stream."""

    def answered(self, _, content) -> None:
        self.told.append(content)

    def not_processed(self, reason) -> None:
        self.told.append(reason)

    too_large = not_processed

    def lost(self, reason) -> None:
        self.told.append(ConnectionError(reason))


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.writes = 0

    def write(self, data) -> None:
        self.written += data
        self.writes += 1

    def abort(self) -> None:
        pass

    close = abort

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


def connected(headers, settings=b"", keeping=None) -> tuple[Http2Connection, Wire]:
    """A connection whose peer has sent its settings, and what it writes to."""
    wire = Wire()
    connection = Http2Connection(headers, keeping or Keeping())
    connection.connection_made(wire)
    connection.data_received(frame(4, 0, 0, settings))
    return connection, wire
