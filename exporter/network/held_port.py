"""Free ports of loopback that stay free for a server that is about to start."""

from __future__ import annotations

import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"


def hold_port(port: int = 0) -> socket.socket:
    """Return a socket bound to the port, by default to any free one, that never listens.

    Until it is closed, the kernel gives the port to no process that asks for any port, to
    listen on or to connect from. A server that is given the port can listen on it, also
    after a restart, if it sets SO_REUSEADDR, as Triton, Prometheus and uvicorn do.

    Raises:
        OSError: another process listens on it.
    """
    holder = socket.socket()
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((LOOPBACK, port))
    except OSError:
        holder.close()
        raise
    return holder
