"""Servers that send without end: what is kept of it is bounded, and the error says so."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import socket
import struct
from pathlib import Path

import hpack
import pytest
from http2_wire import Waiting, connected, frame
from load_runs import send
from tcp_peers import TcpServer, endless

from loadtests.engine.senders import MAX_ANSWER_BYTES, Keeping
from loadtests.errors import LoadError
from loadtests.result import Outcome
from loadtests.target import Target

BEGINS = b"\x88"  # :status 200, of the static table
PIECE = bytes(16_384)


def endless_data(number):
    yield frame(1, 4, number, BEGINS)
    yield from itertools.repeat(frame(0, 0, number, PIECE))


def endless_announcements(number):
    """Headers that say each time that the headers are still to come."""
    block = hpack.Encoder().encode(
        [(b":status", b"103"), (b"link", bytes(16_000))], huffman=False
    )
    yield from itertools.repeat(frame(1, 4, number, block))


def endless_headers(number):
    yield frame(1, 0, number, BEGINS)
    yield from itertools.repeat(frame(9, 0, number, PIECE))


def endless_pings(_):
    """By a peer that reads nothing any more."""
    yield None
    yield from itertools.repeat(frame(6, 0, 0, bytes(8)) * 1000)


def long_ping(_):
    yield frame(6, 0, 0, bytes(9))
    yield from itertools.repeat(b"")


class Hostile(TcpServer):
    """Speaks just enough HTTP/2 to begin answers that do not end."""

    def __init__(self, answer) -> None:
        self._answer = answer
        super().__init__(self._talk)
        # What a peer leaves unread shall soon be seen by who sends it.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    def _talk(self, peer: socket.socket) -> None:
        peer.sendall(frame(4, 0, 0))
        received, streams, reads = b"", {}, True
        while True:
            if reads:
                with contextlib.suppress(BlockingIOError):
                    flags = socket.MSG_DONTWAIT if streams else 0
                    more = peer.recv(1 << 20, flags)
                    if not more:
                        return
                    received = self._take(received + more, streams)
            for pieces in tuple(streams.values()):
                piece = next(pieces)
                reads = reads and piece is not None
                peer.sendall(piece or b"")

    def _take(self, received: bytes, streams) -> bytes:
        received = received.removeprefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        while len(received) >= 9:
            end = 9 + int.from_bytes(received[:3], "big")
            if len(received) < end:
                break
            kind, number = received[3], int.from_bytes(received[5:9], "big")
            if kind == 1:
                streams[number] = self._answer(number)
            elif kind == 3:
                streams.pop(number, None)
            received = received[end:]
        return received


def silent(peer: socket.socket) -> None:
    """Read, and say nothing."""
    while peer.recv(1 << 16):
        pass


class Peak:
    """By how much the process grew at most within the block."""

    def __enter__(self):
        Path("/proc/self/clear_refs").write_text("5", "ascii")
        self._before = self._read("VmRSS")
        return self

    def __exit__(self, *_) -> None:
        self.bytes = self._read("VmHWM") - self._before

    def _read(self, name: str) -> int:
        status = Path("/proc/self/status").read_text("ascii")
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        return int(found[1]) * 1024


def run(target, mix, count=2, timeout_seconds=60.0):
    return send(target, mix, count, concurrency=2, timeout_seconds=timeout_seconds)


@pytest.mark.parametrize("answer", [endless_data, endless_announcements])
def test_an_answer_without_end_is_given_up_over_grpc(
    fake, target_of, mix_of, answer
) -> None:
    mix = mix_of(target_of(fake, "grpc"), "fake")
    with Hostile(answer) as server, Peak() as peak:
        result = run(Target("grpc", server.address), mix)
    assert result.requests.count(Outcome.WRONG) == 2, result.errors
    for message in result.errors:
        sizes = re.fullmatch(
            r"the answer is larger than (\d+) B: (\d+) B had come when it was given up",
            message,
        )
        assert sizes, message
        limit, came = map(int, sizes.groups())
        assert limit == MAX_ANSWER_BYTES
        assert limit < came <= limit + 2 * len(PIECE)
    # Both answers as far as they came, one copied while it grows, and what a run needs.
    assert peak.bytes < 3 * MAX_ANSWER_BYTES + (64 << 20)


@pytest.mark.parametrize(
    ("framing", "piece"),
    [
        (b"Content-Length: 1000000000000", PIECE),
        (b"Transfer-Encoding: chunked", b"4000\r\n" + PIECE + b"\r\n"),
    ],
    ids=["length", "chunks"],
)
def test_an_answer_without_end_is_given_up_over_http(
    fake, target_of, mix_of, framing, piece
) -> None:
    mix = mix_of(target_of(fake, "http"), "fake")
    with (
        endless(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % framing, piece) as server,
        Peak() as peak,
    ):
        result = run(Target("http", server.address), mix)
    assert result.requests.count(Outcome.WRONG) == 2, result.errors
    for message in result.errors:
        assert f"larger than {MAX_ANSWER_BYTES} B: " in message
    # As it came, and its body.
    assert peak.bytes < 4 * MAX_ANSWER_BYTES + (64 << 20)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (endless_headers, "a header block without end"),
        (endless_pings, "the server does not read acknowledgements"),
        (long_ping, "a ping of 9 bytes; want 8"),
    ],
)
def test_what_is_no_answer_ends_the_connection_and_says_why(
    fake, target_of, mix_of, answer, told
) -> None:
    mix = mix_of(target_of(fake, "grpc"), "fake")
    with Hostile(answer) as server, Peak() as peak:
        result = run(Target("grpc", server.address), mix, count=1)
    assert result.requests.count(Outcome.ERROR) == 1, result.errors
    assert any(told in message for message in result.errors), result.errors
    assert peak.bytes < 64 << 20


def test_a_server_that_never_says_what_it_is_leaves_no_connection(
    fake, target_of, mix_of
) -> None:
    mix = mix_of(target_of(fake, "grpc"), "fake")
    run(target_of(fake, "grpc"), mix)
    with TcpServer(silent) as server:
        with pytest.raises(LoadError, match="no connection in time"):
            run(Target("grpc", server.address), mix, timeout_seconds=0.3)
        port = f":{int(server.address.rpartition(':')[2]):04X} "
        connections = [
            line.split()
            for line in Path("/proc/self/net/tcp").read_text("ascii").splitlines()
            if port in line
        ]
    established = [c for c in connections if c[3] == "01" and c[2].endswith(port[:-1])]
    assert not established


# What is kept, counted exactly.


def talk(keeping, frames, requests=2):
    """Return the outcomes of the waiting requests, and the cancelled streams."""

    async def talking():
        waiting = [Waiting() for _ in range(requests)]
        connection, wire = connected([(b":method", b"POST")], keeping=keeping)
        for one in waiting:
            connection.request(one, b"content")
        start = len(wire.written)
        for part in frames:
            connection.data_received(part)
        return [one.told for one in waiting], wire.written[start:]

    told, written = asyncio.run(talking())
    cancelled = [
        struct.unpack(">xxxBxIxxxx", written[at : at + 13])[1]
        for at in range(0, len(written), 13)
    ]
    return told, cancelled


def test_an_answer_of_the_size_allowed_comes_and_one_byte_more_does_not() -> None:
    keeping = Keeping(answer_bytes=5000)
    begins = [frame(1, 4, n, BEGINS) + frame(0, 0, n, bytes(2500)) for n in (1, 3)]
    ends = [frame(0, 1, 1, bytes(2500)), frame(0, 1, 3, bytes(2501))]
    told, cancelled = talk(keeping, begins + ends)
    assert told[0] == [bytes(5000)]
    assert told[1] == [
        "the answer is larger than 5000 B: 5001 B had come when it was given up"
    ]
    assert cancelled == []
    assert keeping.held == 0


def test_the_answers_under_way_are_bounded_together() -> None:
    keeping = Keeping(together_bytes=5000)
    begins = [frame(1, 4, n, BEGINS) + frame(0, 0, n, bytes(2000)) for n in (1, 3)]
    more = [frame(0, 0, 1, bytes(1001)), frame(0, 1, 3, bytes(3000))]
    told, cancelled = talk(keeping, begins + more)
    (fault,) = told[0]
    assert fault == (
        "the answers under way are together larger than 5000 B: 3001 B of this one had "
        "come when it was given up"
    )
    assert told[1] == [bytes(5000)]
    assert cancelled == []
    assert keeping.held == 0


def test_what_a_server_that_goes_away_did_not_take_may_be_sent_again() -> None:
    goodbye = frame(7, 0, 0, struct.pack(">II", 1, 0))
    ends = frame(1, 4, 1, BEGINS) + frame(0, 1, 1, b"answer")
    told, cancelled = talk(Keeping(), [goodbye, ends])
    assert told == [[b"answer"], ["the server closed the connection (GOAWAY, code 0)"]]
    assert cancelled == []


def test_an_answer_in_drops_is_counted_too() -> None:
    keeping = Keeping(answer_bytes=100)
    drops = [frame(1, 4, 1, BEGINS)] + [frame(0, 0, 1, b"x")] * 200
    told, cancelled = talk(keeping, drops, requests=1)
    assert len(told[0]) == 1
    assert "larger than 100 B" in told[0][0]
    assert cancelled == []


def test_only_so_many_answers_are_read_on() -> None:
    numbers = range(1, 2 * 65, 2)
    large = [frame(1, 4, n, BEGINS) + frame(0, 0, n, bytes(1025)) for n in numbers]
    told, cancelled = talk(Keeping(answer_bytes=100), large, requests=65)
    assert [len(faults) for faults in told] == [1] * 65
    assert cancelled == [numbers[-1]]
