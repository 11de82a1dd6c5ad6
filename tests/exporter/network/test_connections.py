"""Memory held by broken connections."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref

import pytest
from surfaces import serving

from exporter.network.connections import BoundedProtocol

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes `close` send a reset."""


def connections() -> weakref.WeakSet[BoundedProtocol]:
    gc.collect()
    return weakref.WeakSet(
        each for each in gc.get_objects() if isinstance(each, BoundedProtocol)
    )


@pytest.mark.parametrize("reads", [True, False], ids=["answered", "while asked"])
async def test_nothing_stays_of_a_connection_that_is_reset(reads):
    async with serving(start=False) as served:
        before = len(connections())
        for _ in range(20):
            client = socket.create_connection(("127.0.0.1", served.port), timeout=5)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
            if reads:
                assert await asyncio.to_thread(client.recv, 12) == b"HTTP/1.1 200"
            client.close()
        for _ in range(50):
            await asyncio.sleep(0.1)
            if len(connections()) <= before:
                return
        assert len(connections()) == before
