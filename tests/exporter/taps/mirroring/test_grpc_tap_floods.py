"""Frames of HTTP/2 that cost more than they weigh: the gRPC tap reads few, and ends."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from attack_connections import connected
from grpc_tap_clients import Served, message
from http2_floods import FLOODS, START, calls, pings, settings, windows
from waiting import patience, wait_until

from exporter.taps import tap_relay

FLOODED_SECONDS = 1.0
WAITING_BYTES = 8 << 20
"""What both sockets of a relay and the relay itself hold at most, doubled."""


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


@pytest.mark.parametrize("frames", [settings, pings])
def test_who_reads_no_answers_is_read_no_further(serve_grpc, frames):
    served = serve_grpc()
    assert flood(served, frames, connections=1) < WAITING_BYTES
    assert served.call(message()) == b""


def test_a_connection_with_many_frames_is_read_on_but_more_slowly(serve_grpc):
    served = serve_grpc()
    host, _, port = served.tap.address.rpartition(":")
    call = calls("ModelInfer", 1, message().SerializeToString())
    flooded = 1.5
    many = windows(1) * round(flooded * tap_relay._FRAMES_PER_SECOND / 1_000)
    with connected((host, int(port))) as client:
        client.settimeout(patience(10))
        began = time.monotonic()
        client.sendall(START + many + call.removeprefix(START))
        served.wait(lambda: served.outcomes() == {"accepted": 1})
        assert time.monotonic() - began > flooded / 2
