"""FakeTriton scripted to break the protocol: garbage, half an answer, a dropped connection."""

from __future__ import annotations

import http.client
import socket

import grpc
import pytest
from fault_clients import grpc_failure, grpc_infer, http_request, raw_answer
from triton_clients import call, message

from exporter.testing import Body, Dropped, Garbage, HalfAnswer

BROKEN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
}
"""What gRPC's versions make of a connection that stops being HTTP/2."""


class TestBytes:
    def test_garbage_on_http_and_metrics_is_not_http_and_then_the_end(self, fake):
        fake.on("any").reply(Garbage(b"\x00\xffgarbage"))
        for address, path in ((fake.http, "/v2"), (fake.metrics, "/metrics")):
            received, _ = raw_answer(address, http_request(path))
            assert received == b"\x00\xffgarbage"
            with pytest.raises(http.client.BadStatusLine):
                call(address, "GET", path)

    def test_garbage_on_grpc_breaks_the_connection_and_the_next_one_works(self, fake):
        fake.on("infer").reply(Garbage(), times=1)
        assert grpc_failure(fake)[0] in BROKEN
        assert grpc_infer(fake).outputs

    def test_garbage_on_grpc_arrives_byte_for_byte_and_then_the_end(self, fake):
        fake.on("server_live").reply(Garbage())
        received, _ = raw_answer(fake.grpc, http2_call("ServerLive"))
        assert received.endswith(bytes(range(256)))

    def test_half_an_http_answer_promises_more_than_comes(self, fake):
        _, whole = call(fake.http, "GET", "/v2")
        fake.on("server_metadata").reply(HalfAnswer())
        received, _ = raw_answer(fake.http, http_request())
        head, body = received.split(b"\r\n\r\n")
        assert f"Content-Length: {len(whole)}".encode() in head
        assert body == whole[: len(whole) // 2]
        with pytest.raises(http.client.IncompleteRead):
            call(fake.http, "GET", "/v2")

    def test_half_a_metrics_page_can_be_sent(self, fake):
        fake.on("metrics").reply(HalfAnswer(0.9))
        with pytest.raises(http.client.IncompleteRead) as caught:
            call(fake.metrics, "GET", "/metrics")
        assert caught.value.partial.startswith(b"# HELP")

    def test_half_a_grpc_answer_ends_inside_a_data_frame(self, fake):
        whole = frames(raw_answer_until_trailers(fake, "ServerMetadata"))
        (complete,) = [payload for kind, payload, _ in whole if kind == 0]
        fake.on("server_metadata").reply(HalfAnswer())
        received, _ = raw_answer(fake.grpc, http2_call("ServerMetadata"))
        kind, payload, promised = frames(received)[-1]
        assert kind == 0
        assert promised == len(complete)
        assert payload == complete[: promised // 2]

    def test_clients_see_half_a_grpc_answer_as_unavailable(self, fake):
        fake.on("infer").reply(HalfAnswer(), times=1)
        assert grpc_failure(fake)[0] is grpc.StatusCode.UNAVAILABLE
        assert grpc_infer(fake).outputs

    def test_a_dropped_connection_is_reset_before_the_first_byte(self, fake):
        fake.on("any").reply(Dropped())
        for address, path in ((fake.http, "/v2"), (fake.metrics, "/metrics")):
            assert raw_answer(address, http_request(path)) == (b"", True)
        received, was_reset = raw_answer(fake.grpc, http2_call("ServerLive"))
        assert was_reset
        assert not {0, 1} & {kind for kind, _, _ in frames(received)}
        assert grpc_failure(fake)[0] is grpc.StatusCode.UNAVAILABLE

    def test_a_well_framed_answer_can_hold_anything(self, fake):
        fake.on("any").reply(Body(b"\xff\xff\xff", "application/json"))
        assert call(fake.http, "GET", "/v2") == (200, b"\xff\xff\xff")
        assert call(fake.metrics, "GET", "/metrics") == (200, b"\xff\xff\xff")
        with grpc.insecure_channel(fake.grpc) as channel:
            raw = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            assert raw(message().SerializeToString(), timeout=10) == b"\xff\xff\xff"
        assert grpc_failure(fake)[0] is grpc.StatusCode.INTERNAL


def http2_call(method):
    """A whole gRPC call as bytes (RFC 9113, RFC 7541 6.2.2), its message empty."""
    fields = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", f"/inference.GRPCInferenceService/{method}"),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    )
    block = b"".join(
        b"\x00"
        + bytes((len(key),))
        + key.encode()
        + bytes((len(value),))
        + value.encode()
        for key, value in fields
    )
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(4, 0, 0, b"")
        + frame(1, 4, 1, block)
        + frame(0, 1, 1, bytes(5))
    )


def frame(kind, flags, stream, payload):
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags))
    return head + stream.to_bytes(4, "big") + payload


def frames(data):
    """Frames as (kind, payload that came, length promised)."""
    found = []
    while data:
        promised = int.from_bytes(data[:3], "big")
        found.append((data[3], data[9 : 9 + promised], promised))
        data = data[9 + promised :]
    return found


def raw_answer_until_trailers(fake, method):
    """What comes until the second HEADERS frame, gRPC's trailers."""
    host, port = fake.grpc.split(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(http2_call(method))
        while [kind for kind, _, _ in frames(received)].count(1) < 2:
            received += connection.recv(65_536)
    return received
