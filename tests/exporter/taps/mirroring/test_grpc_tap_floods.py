"""Frames of HTTP/2 that cost more than they weigh: the gRPC tap reads few, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from pathlib import Path

import pytest
from attack_connections import connected
from grpc_tap_clients import Served, message
from http2_floods import FLOODS, START, calls
from http2_wire import frame
from waiting import patience, wait_until

from exporter.network.admission import Admission
from exporter.network.listening import Acceptor, bind
from exporter.taps import tap_relay
from exporter.taps.tap_relay import Relay

FLOODED_SECONDS = 1.0
WAITING_BYTES = 8 << 20
"""Twice the most that a relay and its two sockets hold."""


def flood(served, frames, connections=2) -> int:
    """Send such frames without reading an answer; the bytes that were sent."""
    host, _, port = served.tap.address.rpartition(":")
    sent, end = 0, time.monotonic() + FLOODED_SECONDS
    with contextlib.ExitStack() as stack:
        for _ in range(connections):
            with contextlib.suppress(OSError):
                client = stack.enter_context(connected((host, int(port))))
                client.settimeout(FLOODED_SECONDS / 4)
                client.sendall(START)
                number = 1
                while time.monotonic() < end:
                    sent += client.send(frames(number))
                    number += 2
    return sent


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("frames", FLOODS, ids=lambda frames: frames.__name__)
def test_a_flood_leaves_nothing_behind_and_the_tap_ends(access, frames):
    served = Served(access)
    try:
        assert served.call(message()) == b""
        before = descriptors()
        flood(served, frames)
        assert served.call(message()) == b""
        wait_until(lambda: descriptors() <= before, descriptors)
        wait_until(lambda: len(served.admission.grpc.visitors) <= 1)
    finally:
        served.close()


def send_unread(address) -> int:
    """Send messages without reading an answer; the bytes that were taken."""
    message, sent = frame(0, 0, 1, b"d" * 16_384), 0
    with connected(address) as client:
        client.settimeout(patience(1.0))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        client.sendall(START)
        with contextlib.suppress(TimeoutError):
            while sent < 4 * WAITING_BYTES:
                sent += client.send(message)
    return sent


async def taken_from_who_reads_nothing() -> int:
    """The bytes that a relay takes for a server that keeps answers in its memory."""
    path, entrance = f"\0test-{secrets.token_hex(16)}", Admission().grpc

    async def serve(reader, writer) -> None:
        while data := await reader.read(1 << 16):
            writer.write(2 * data)
        writer.transport.abort()

    async def where(_) -> str:
        return path

    async with await asyncio.start_unix_server(serve, path):
        with bind("127.0.0.1", 0) as listener:
            acceptor = Acceptor(
                listener, entrance, lambda visitor: Relay(visitor, entrance, where)
            )
            sent = await asyncio.to_thread(send_unread, listener.getsockname()[:2])
            acceptor.close()
            await acceptor.wait_closed()
    return sent


def test_who_reads_no_answers_is_read_no_further():
    assert asyncio.run(taken_from_who_reads_nothing()) < 2 * WAITING_BYTES


def test_a_connection_with_many_frames_is_read_on_but_more_slowly(serve_grpc):
    served, flooded, piece = serve_grpc(), 1.5, 5
    values = round(flooded * tap_relay._FRAMES_PER_SECOND) * piece // 4
    x = ("x", "FP32", (values,), None)
    text = message(x, raw=(bytes(4 * values),)).SerializeToString()
    text = b"\0" + len(text).to_bytes(4, "big") + text
    parts = [text[at : at + piece] for at in range(0, len(text), piece)]
    frames = b"".join(frame(0, 0, 1, part) for part in parts) + frame(0, 1, 1)
    host, _, port = served.tap.address.rpartition(":")
    with connected((host, int(port))) as client:
        client.settimeout(patience(10))
        began = time.monotonic()
        client.sendall(calls("ModelInfer", 1) + frames)
        served.wait(lambda: served.outcomes() == {"accepted": 1})
        assert time.monotonic() - began > flooded / 2


def test_many_calls_with_the_smallest_message_are_answered(serve_grpc):
    served = serve_grpc()
    small = message(("x", "BOOL", (1,), None), raw=(b"\1",))
    small.ClearField("id")
    answers = {served.call(small) for _ in range(400)}
    assert answers == {b""}
