"""FakeTriton scripted to be late: slow, hung and dripping answers on every port."""

from __future__ import annotations

import socket
import time

import grpc
import pytest
from fault_clients import (
    INFER,
    grpc_failure,
    grpc_infer,
    http_infer,
    http_request,
    statistics,
)
from triton_clients import call, stub
from tritonclient.grpc import service_pb2 as pb

from exporter.testing import Dripping, FakeModel, FakeTriton, Hung, Slow, Timings


class TestTime:
    def test_a_slow_model_is_late_on_both_ports_and_shows_it_in_its_statistics(
        self, fake
    ):
        fake.on("infer", model="m").reply(Slow(0.2))
        for ask in (grpc_infer, http_infer):
            began = time.monotonic()
            ask(fake)
            assert time.monotonic() - began >= 0.2
        grpc_infer(fake, "n")
        stats = statistics(fake)["inference_stats"]
        assert stats["compute_infer"]["ns"] >= 2 * 200_000_000
        assert stats["queue"]["ns"] < 1_000_000
        assert statistics(fake, "n")["inference_stats"]["success"]["ns"] < 1_000_000

    @pytest.mark.parametrize(
        ("phase", "queue", "compute"), [("queue", 1, 0), ("network", 0, 0)]
    )
    def test_the_time_shows_in_the_phase_it_was_scripted_for(
        self, phase, queue, compute
    ):
        model = FakeModel("m", timings=Timings(0, 0, 0, 0))
        with FakeTriton([model]) as fake:
            fake.on("infer").reply(Slow(0.01, phase=phase))
            grpc_infer(fake)
            stats = statistics(fake)["inference_stats"]
            assert stats["queue"]["ns"] == queue * 10_000_000
            assert stats["compute_infer"]["ns"] == compute * 10_000_000

    def test_a_slow_inference_is_counted_after_its_client_has_given_up(self, fake):
        fake.on("infer").reply(Slow(0.2))
        assert grpc_failure(fake, timeout=0.05)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        deadline = time.monotonic() + 10
        while statistics(fake)["inference_count"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    @pytest.mark.parametrize(
        ("operation", "path"),
        [
            ("server_ready", "/v2/health/ready"),
            ("model_metadata", "/v2/models/m"),
            ("statistics", "/v2/models/stats"),
        ],
    )
    def test_any_operation_can_be_slow(self, fake, operation, path):
        fake.on(operation).reply(Slow(0.1))
        began = time.monotonic()
        assert call(fake.http, "GET", path)[0] == 200
        assert time.monotonic() - began >= 0.1

    def test_a_hung_call_keeps_its_connection_open_and_is_never_counted(self, fake):
        fake.on("infer").reply(Hung())
        assert grpc_failure(fake, timeout=0.1)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        host, port = fake.http.split(":")
        with socket.create_connection((host, int(port)), timeout=0.2) as connection:
            head = f"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: {len(INFER)}"
            connection.sendall(f"{head}\r\n\r\n{INFER}".encode())
            fake.wait_for("infer", protocol="http")
            with pytest.raises(TimeoutError):
                connection.recv(1)
        deadline = time.monotonic() + 10
        while fake.concurrency().current:
            assert time.monotonic() < deadline, "a hung call outlives its client"
            time.sleep(0.01)
        assert statistics(fake)["inference_stats"]["success"]["count"] == 0

    def test_a_frozen_server_hangs_on_all_three_ports(self, fake):
        fake.on("any").reply(Hung())
        assert grpc_failure(fake, timeout=0.1)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        for address, path in ((fake.http, "/v2"), (fake.metrics, "/metrics")):
            host, port = address.split(":")
            with socket.create_connection((host, int(port)), timeout=0.1) as connection:
                connection.sendall(http_request(path))
                with pytest.raises(TimeoutError):
                    connection.recv(1)

    def test_a_dripping_answer_gets_through_every_single_read_and_takes_long(
        self, fake
    ):
        fake.on("server_metadata").reply(Dripping(0.001))
        host, port = fake.http.split(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(http_request())
            received, reads = b"", 0
            while not received.endswith(b'"logging"]}'):
                received += connection.recv(65_536)
                reads += 1
        assert reads > 1
        with stub(fake) as service:
            began = time.monotonic()
            assert service.ServerMetadata(pb.ServerMetadataRequest()).name == "triton"
            assert time.monotonic() - began > 0.1

    def test_a_dripping_answer_outlasts_a_deadline(self, fake):
        fake.on("infer").reply(Dripping(0.05))
        assert grpc_failure(fake, timeout=0.1)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
