"""HTTP/2 of our own beside grpcio's: headers, windows, limits, endings."""

from __future__ import annotations

import asyncio
import struct
import threading
from concurrent import futures

import grpc
import hpack
import pytest
from fake_triton import FakeModel, FakeTensor, FakeTriton, Slow
from http2_wire import Waiting, connected, frame
from hypothesis import given
from hypothesis import strategies as st
from load_runs import send

from loadtests.engine.http2_streams import Decoder, SameHeaders
from loadtests.result import Outcome

HEADERS = [(b":method", b"POST"), (b":path", b"/infer"), (b"x-long", b"y" * 300)]


def test_a_block_is_remembered_only_while_the_table_stays() -> None:
    decoder = Decoder()
    theirs = hpack.Encoder()
    first, short = theirs.encode(HEADERS), theirs.encode(HEADERS)
    assert list(decoder.decode(first)) == HEADERS
    for _ in range(3):
        assert list(decoder.decode(short)) == HEADERS
    decoder.decode(theirs.encode([(b"new", b"entry")]))
    assert list(decoder.decode(short)) != HEADERS


@pytest.mark.parametrize("table", [0, 300, 4096, 1 << 20])
def test_a_request_says_the_same_to_a_peer_with_a_table_of_any_size(table) -> None:
    theirs = hpack.Decoder()
    theirs.max_allowed_table_size = table
    ours = SameHeaders(HEADERS)
    ours.allow(table)
    for path in (None, None, b"/other", None, b"/other", b"/other", None, None):
        wanted = [(n, path or v) if n == b":path" else (n, v) for n, v in HEADERS]
        assert theirs.decode(ours.block(path), raw=True) == wanted
    assert ours.block() is ours.block()


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        (5, 0, False),
        (5, 16_383, False),
        (5, 16_384, True),
        (5, 2**24 - 1, True),
        (5, 2**24, False),
        (4, 0, True),
        (4, 2**31 - 1, True),
        (4, 2**31, False),
    ],
)
def test_settings_that_the_rfc_does_not_allow_end_the_connection(
    key, value, allowed
) -> None:
    async def talk() -> str:
        settings = struct.pack(">HI", key, value)
        waiting, (connection, _) = Waiting(), connected(HEADERS, settings)
        assert connection.usable is allowed
        connection.request(waiting, bytes(70_000))
        connection.connection_lost(None)
        return str(waiting.told[0])

    reason = asyncio.run(talk())
    assert (f"a setting of {value}; want" in reason) is not allowed


def test_what_comes_and_goes_in_many_parts_is_whole() -> None:
    content = bytes(range(256)) * 800

    async def talk() -> tuple[bytes, bytes]:
        waiting, (connection, wire) = Waiting(), connected(HEADERS)
        start = len(wire.written)
        connection.request(waiting, content)
        for number in (0, 1):
            connection.data_received(frame(8, 0, number, struct.pack(">I", 1 << 20)))
        block = hpack.Encoder().encode([(b":status", b"200"), (b"x", b"y")])
        connection.data_received(frame(1, 0, 1, block[:2]))
        for place in range(2, len(block)):
            connection.data_received(frame(9, 0, 1, block[place : place + 1]))
        connection.data_received(frame(9, 4, 1))
        for place in range(0, len(content), 1000):
            connection.data_received(frame(0, 0, 1, content[place : place + 1000]))
        connection.data_received(frame(0, 1, 1))
        return wire.written[start:], waiting.told[0]

    written, answer = asyncio.run(talk())
    assert answer == content
    sent, ends = b"", []
    while written:
        size, kind, flags = int.from_bytes(written[:3], "big"), written[3], written[4]
        if kind == 0:
            sent += written[9 : 9 + size]
            ends.append(flags & 1)
        written = written[9 + size :]
    assert sent == content
    assert ends == [0] * (len(ends) - 1) + [1]


class Again(Waiting):
    """Sends the next request when it is answered, as a closed loop does."""

    def __init__(self, connection) -> None:
        super().__init__()
        self._connection = connection

    def answered(self, headers, content) -> None:
        super().answered(headers, content)
        self._connection.request(Waiting(), b"next")


def test_requests_that_follow_answers_read_at_once_are_sent_at_once() -> None:
    async def talk() -> tuple[int, bytes]:
        connection, wire = connected(HEADERS)
        for _ in range(8):
            connection.request(Again(connection), b"first")
        before, start = wire.writes, len(wire.written)
        block = hpack.Encoder().encode([(b":status", b"200"), (b"x", b"y")])
        connection.data_received(
            b"".join(
                frame(1, 4, number, block) + frame(0, 1, number, b"answer")
                for number in range(1, 17, 2)
            )
        )
        return wire.writes - before, wire.written[start:]

    writes, written = asyncio.run(talk())
    assert writes == 1
    assert written.count(b"next") == 8


@given(st.binary(max_size=400))
def test_any_bytes_on_the_wire_end_in_an_answer_or_the_end(data) -> None:
    async def talk() -> int:
        waiting, (connection, _) = Waiting(), connected(HEADERS)
        connection.request(waiting, b"content")
        connection.data_received(data)
        connection.connection_lost(None)
        return len(waiting.told)

    assert asyncio.run(talk()) == 1


# Beside grpcio.


@pytest.mark.parametrize("values", [5_000, 20_000, 400_000])
def test_bodies_larger_than_frames_and_windows_go_and_come(
    target_of, mix_of, values
) -> None:
    tensors = (FakeTensor("x", "FP32", (values,)),)
    model = FakeModel("big", inputs=tensors, outputs=tensors)
    with FakeTriton([model]) as fake:
        target = target_of(fake, "grpc")
        result = send(target, mix_of(target, "big", variants=2), 12)
    assert result.requests.count(Outcome.OK) == 12, result.errors


@pytest.mark.parametrize("streams", [1, 3])
def test_no_more_streams_are_opened_than_the_server_allows(
    target_of, mix_of, fake, streams
) -> None:
    most = busy = 0
    lock = threading.Lock()
    stub = grpc.insecure_channel(fake.grpc)
    infer = stub.unary_unary("/inference.GRPCInferenceService/ModelInfer")

    def forwarded(request: bytes, context: grpc.ServicerContext) -> bytes:
        nonlocal most, busy
        with lock:
            busy += 1
            most = max(most, busy)
        try:
            return infer(request)
        finally:
            with lock:
                busy -= 1

    method = grpc.unary_unary_rpc_method_handler(forwarded)
    handler = grpc.method_handlers_generic_handler(
        "inference.GRPCInferenceService", {"ModelInfer": method}
    )
    server = grpc.server(
        futures.ThreadPoolExecutor(8),
        handlers=(handler,),
        options=[("grpc.max_concurrent_streams", streams)],
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    fake.on("infer").reply(Slow(0.02, phase="network"))
    try:
        mix = mix_of(target_of(fake, "grpc"), "fake")
        target = type(target_of(fake, "grpc"))("grpc", f"127.0.0.1:{port}")
        result = send(target, mix, 24, concurrency=8)
    finally:
        server.stop(None).wait()
        stub.close()
    assert result.requests.count(Outcome.OK) == 24, result.errors
    assert most == streams
    assert "requests waited here for one of the streams" in str(result.verdict.warnings)


def test_metadata_is_sent(fake, target_of, mix_of) -> None:
    target = target_of(fake, "grpc")
    mix = mix_of(target, "fake")
    fake.forget()
    named = type(target)("grpc", target.address, {"X-Caller": "load"})
    assert send(named, mix, 3).requests.count(Outcome.OK) == 3
    received = [r for r in fake.requests if r.operation == "infer"]
    assert len(received) == 3
    assert {dict(r.headers)["x-caller"] for r in received} == {"load"}
