"""The bounds of the fault proxy's wire, made small enough to be met."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from waiting import patience

from loadtests.chaos.network import wire as wires
from loadtests.chaos.network.wire import Effect, Wire, together

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
async def wire() -> AsyncGenerator[tuple[Wire, int]]:
    """One in front of an echo, and its port."""
    loop = asyncio.get_running_loop()
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        made = Wire("127.0.0.1", server.sockets[0].getsockname()[1], seed="1")
        front = await loop.create_server(made.accept, "127.0.0.1", 0)
        async with front:
            yield made, front.sockets[0].getsockname()[1]


async def echoed(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.readexactly(len(data)), patience(30))
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "effect",
    [
        Effect(delay_seconds=0.002),
        Effect(delay_seconds=0.002, jitter_seconds=0.002),
        Effect(bytes_per_second=20e6),
    ],
)
async def test_all_bytes_arrive_in_order_however_little_is_held(
    wire, monkeypatch, effect
):
    monkeypatch.setattr(wires, "HELD_BYTES", 1000)
    monkeypatch.setattr(wires, "ALL_HELD_BYTES", 2000)
    made, port = wire
    made.set_effects([effect])
    sent = [bytes([number]) * 500 + bytes(range(256)) * 2000 for number in range(4)]
    assert await asyncio.gather(*(echoed(port, data) for data in sent)) == sent
    assert made.held_bytes == 0


async def test_effects_that_come_and_go_lose_no_byte(wire):
    made, port = wire

    async def change() -> None:
        for number in range(40):
            partition = Effect(partitioned=True)
            effects = [[partition], [Effect(delay_seconds=0.05)], []][number % 3]
            made.set_effects(effects)
            await asyncio.sleep(0.01)
        made.set_effects([])

    data = bytes(range(256)) * 40_000
    answered, _ = await asyncio.gather(echoed(port, data), change())
    assert answered == data
    assert made.held_bytes == 0


async def test_one_connection_too_many_is_reset(wire, monkeypatch):
    monkeypatch.setattr(wires, "MAX_CONNECTIONS", 2)
    made, port = wire
    kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    with pytest.raises(ConnectionError):
        await echoed(port, b"x")
    assert made.connections == 2
    for _, writer in kept:
        writer.close()
        await writer.wait_closed()
    for _ in range(2000):
        if made.connections:
            await asyncio.sleep(0.01)
    assert made.connections == 0
    assert await echoed(port, b"x") == b"x"


def test_effects_together_are_the_worst_of_each():
    both = together(
        [
            Effect(delay_seconds=0.1, loss_ratio=0.5, bytes_per_second=1000.0),
            Effect(delay_seconds=0.2, loss_ratio=0.5, bytes_per_second=10.0),
            Effect(partitioned=True, directions="answers"),
        ],
        "requests",
    )
    assert both.delay_seconds == pytest.approx(0.3)
    assert both.loss_ratio == pytest.approx(0.75)
    assert both.bytes_per_second == 10.0
    assert not both.partitioned
