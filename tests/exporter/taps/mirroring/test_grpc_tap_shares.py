"""Calls and connections of one sender leave the gRPC tap room for others."""

from __future__ import annotations

import contextlib
import queue
import threading
import time

import grpc
import pytest
from attack_connections import connected
from attacks import (
    NOWHERE,
    Target,
    flooded_calls,
    idle_calls,
    messageless_streams,
    tried,
)
from grpc_tap_clients import STREAM, message
from running_taps import PATIENT_SECONDS
from waiting import patience

from exporter.network.admission import CONNECTIONS
from exporter.taps import tap_relay


def test_streams_without_messages_make_room_for_calls_with_one(serve_grpc):
    served = serve_grpc()
    served.admission.grpc.calls.limit = 4
    release = threading.Event()

    def held():
        yield message().SerializeToString()
        release.wait(20)

    # Each on a connection of its own: one alone is held to as many streams.
    channels = [
        grpc.insecure_channel(
            served.tap.address, (("grpc.use_local_subchannel_pool", 1), ("n", n))
        )
        for n in range(4)
    ]
    streams = [c.stream_stream(STREAM)(held(), timeout=patience(20)) for c in channels]
    assert [next(stream) for stream in streams] == [b""] * 4
    assert served.call(message()) == b""
    assert served.outcomes()["overloaded"] == 1
    release.set()
    ends = []
    for stream in streams:
        try:
            ends.append(list(stream))
        except grpc.RpcError as error:
            ends.append(error.code())
    refused = grpc.StatusCode.RESOURCE_EXHAUSTED
    assert sorted(ends, key=str) == sorted([[], [], [], refused], key=str)
    for channel in channels:
        channel.close()


def test_idle_connections_keep_no_sender_out(serve_grpc):
    """More than a process has file descriptors for."""
    served = serve_grpc()
    host, _, port = served.tap.address.rpartition(":")
    target = Target(NOWHERE, grpc=(host, int(port)))
    with tried(idle_calls, target), tried(messageless_streams, target, times=20):
        for _ in range(30):
            assert served.call(message()) == b""
            assert len(served.admission.grpc.visitors) <= CONNECTIONS["grpc"]
    assert served.admission.grpc.refused["crowded"] > 0


@pytest.mark.parametrize("attack", [messageless_streams, flooded_calls])
def test_calls_of_one_address_end_no_stream_of_another(serve_grpc, attack):
    served = serve_grpc()
    sent = queue.SimpleQueue()
    stream = served.channel.stream_stream(STREAM)(iter(sent.get, None), timeout=60)
    sent.put(message().SerializeToString())
    assert next(stream) == b""
    host, _, port = served.tap.address.rpartition(":")
    with tried(attack, Target(NOWHERE, grpc=(host, int(port))), times=30):
        sent.put(message().SerializeToString())
        assert next(stream) == b""
        began = time.monotonic()
        assert served.call(message()) == b""
        assert time.monotonic() - began < patience(1.0)
    sent.put(None)
    assert list(stream) == []


def test_who_is_turned_away_is_counted_and_told_why(serve_grpc):
    served = serve_grpc()
    served.admission.grpc.calls.limit = 1
    release = threading.Event()

    def never():
        release.wait(20)
        yield from ()

    streams = [
        served.channel.stream_stream(STREAM)(never(), timeout=patience(20))
        for _ in range(2)
    ]
    served.wait(lambda: served.admission.grpc.refused == {"calls": 1})
    served.wait(lambda: any(each.done() for each in streams))
    ended = next(each for each in streams if each.done())
    assert ended.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "its address has most calls" in ended.details()
    release.set()


@pytest.mark.parametrize(
    "address", ["127.0.0.2", "2001:db8:1234:5678::/64", "", "host-1"]
)
def test_the_address_of_a_sender_comes_through_the_relay(address):
    name = tap_relay._named_after(address)
    assert len(name) < 108, "as long as the name of a Unix socket may be"
    peer = name.replace("\0", "unix-abstract:")
    assert tap_relay.sender_of(peer) == address
    assert tap_relay.sender_of("unix-abstract:somebody") == ""


def test_a_connection_on_which_nothing_comes_is_ended(serve_grpc, monkeypatch):
    monkeypatch.setattr(tap_relay, "HEAD_SECONDS", 0.2)
    served = serve_grpc()
    host, _, port = served.tap.address.rpartition(":")
    with connected((host, int(port))) as silent:
        silent.settimeout(PATIENT_SECONDS)
        with contextlib.suppress(ConnectionError):
            assert silent.recv(1) == b""
    assert served.call(message()) == b""
