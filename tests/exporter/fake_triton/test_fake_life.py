"""FakeTriton from its start to its stop: ports, threads, sockets and limits."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from pathlib import Path

import grpc
import pytest
from triton_clients import M, call, client, eventually, get_json, message, stub
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from exporter.testing import FakeModel, FakeTriton, Hung, Limits


def open_sockets():
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # The listing's own descriptor is gone.
            found.add(str(link.readlink()))
    return {target for target in found if target.startswith("socket:")}


class TestLife:
    def test_three_ports_answer_as_soon_as_it_exists(self, fake):
        with client(fake) as connected:
            assert connected.is_server_live()
            assert connected.is_server_ready()
        assert call(fake.http, "GET", "/v2/health/live") == (200, b"")
        assert call(fake.metrics, "GET", "/metrics")[0] == 200

    def test_stopping_leaves_no_thread_and_no_socket_even_with_calls_that_hang(self):
        threads_before, sockets_before = set(threading.enumerate()), open_sockets()
        fake = FakeTriton([M])
        fake.on("any").reply(Hung())
        idle = http.client.HTTPConnection(fake.http, timeout=10)
        idle.connect()
        channel = grpc.insecure_channel(fake.grpc)
        service = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        hung_rpc = service.ModelInfer.future(message())
        hung_http = socket.create_connection(fake.http.split(":"))
        hung_http.sendall(b"GET /v2 HTTP/1.1\r\n\r\n")
        fake.wait_for("infer")
        fake.wait_for("server_metadata")
        fake.stop()
        assert hung_rpc.exception(timeout=10) is not None
        assert hung_http.recv(100) == b""
        hung_http.close()
        idle.close()
        channel.close()
        for address in (fake.grpc, fake.http, fake.metrics):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address.split(":"))
        eventually(
            lambda: set(threading.enumerate()) <= threads_before,
            f"threads left: {set(threading.enumerate()) - threads_before}",
        )
        eventually(lambda: open_sockets() <= sockets_before, "sockets left")

    def test_it_can_be_stopped_twice(self):
        fake = FakeTriton()
        fake.stop()
        fake.stop()

    def test_while_down_connections_are_refused_and_then_the_same_ports_answer(
        self, fake
    ):
        kept = http.client.HTTPConnection(fake.http, timeout=10)
        kept.request("GET", "/v2/health/live")
        kept.getresponse().read()
        with fake.down():
            for address in (fake.grpc, fake.http, fake.metrics):
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(address.split(":"))
            assert kept.sock.recv(1) == b""
        kept.close()
        assert call(fake.http, "GET", "/v2/health/live")[0] == 200
        assert call(fake.metrics, "GET", "/metrics")[0] == 200
        with client(fake) as connected:
            assert connected.is_server_live()

    async def test_it_serves_asynchronous_clients_from_its_own_threads(self, fake):
        async with grpc.aio.insecure_channel(fake.grpc) as channel:
            service = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            assert (await service.ServerLive(pb.ServerLiveRequest())).live
        reader, writer = await asyncio.open_connection(*fake.http.split(":"))
        writer.write(b"GET /v2 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await writer.wait_closed()
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["name"] == "triton"

    def test_several_run_side_by_side(self):
        with FakeTriton([FakeModel("a")]) as one, FakeTriton([FakeModel("b")]) as two:
            assert get_json(one.http, "/v2/models/a")["name"] == "a"
            assert call(two.http, "GET", "/v2/models/a")[0] == 404

    def test_a_request_larger_than_the_limit_is_refused_on_both_ports(self):
        with FakeTriton([M], limits=Limits(request_bytes=1000)) as fake:
            assert call(fake.http, "POST", "/v2/models/m/infer", b" " * 1001)[0] == 413
            with stub(fake) as service, pytest.raises(grpc.RpcError) as caught:
                service.ModelInfer(message(raw=b" " * 1001))
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    def test_connections_above_the_limit_are_closed_unanswered(self):
        with FakeTriton([M], limits=Limits(connections=1)) as fake:
            first = http.client.HTTPConnection(fake.http, timeout=10)
            first.request("GET", "/v2")
            first.getresponse().read()
            with socket.create_connection(fake.http.split(":"), timeout=10) as second:
                assert second.recv(1) == b""
            first.close()
