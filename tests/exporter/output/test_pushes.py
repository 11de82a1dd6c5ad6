"""Pushes go on after any failure, and the log has its reason."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import structlog
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.metrics.v1 import (
    metrics_service_pb2_grpc as metrics_grpc,
)
from receiver import Receiver
from tls_terminator import Authority
from waiting import patience, wait_until

from exporter.access.span_buffer import SpanBuffer
from exporter.output.otlp_settings import OtlpSettings
from exporter.output.push import OtlpRunner


def test_a_defect_while_pushing_is_logged_once_and_the_pushes_go_on():
    calls, fourth = [], threading.Event()

    def samples():
        calls.append(1)
        if len(calls) == 4:
            fourth.set()
        if len(calls) < 3:
            raise ValueError("nobody foresaw this")
        return []

    async def pushed(url):
        settings = OtlpSettings(endpoint=url, interval_seconds=0.1)
        spans = SpanBuffer(time.time_ns, random.Random(0))  # noqa: S311 - ids of spans
        runner = OtlpRunner(settings, "t", samples, spans, time.time_ns, 0)
        task = asyncio.create_task(runner.run())
        await asyncio.wait(
            {task, asyncio.ensure_future(asyncio.to_thread(fourth.wait, patience()))},
            timeout=patience(),
            return_when=asyncio.FIRST_COMPLETED,
        )
        task.cancel()
        return {s.labels: s.value for s in runner.samples() if len(s.labels) == 2}

    with Receiver() as collector, structlog.testing.capture_logs() as logs:
        counted = asyncio.run(pushed(collector.url))
    assert len(calls) >= 4
    assert counted["metrics", "failed"] == 2
    assert [e["event"] for e in logs].count("otlp_push_broken") == 1


class Scripted(Receiver):
    """Answers (status, headers, body) one after another, then an empty 200 for ever."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)
        self.good = 0
        self.ended = threading.Event()

    def answer(self, _asked):
        if self.answers:
            self.status, headers, body = self.answers.pop(0)
            return body, headers
        self.status = 200
        self.good += 1
        if self.good > 1:  # the first of them has been counted
            self.ended.set()
        return b"", {}


def pushing(ended, **settings):
    """Push until `ended` is set; return the counts by (kind, outcome)."""

    async def pushed():
        settings_of = OtlpSettings(interval_seconds=0.1, timeout_seconds=2, **settings)
        spans = SpanBuffer(time.time_ns, random.Random(0))  # noqa: S311 - ids of spans
        runner = OtlpRunner(settings_of, "t", list, spans, time.time_ns, 0)
        task = asyncio.create_task(runner.run())
        try:
            assert await asyncio.to_thread(ended.wait, patience())
        finally:
            task.cancel()
        return {s.labels: s.value for s in runner.samples() if len(s.labels) == 2}

    return asyncio.run(pushed())


PROTOBUF = {"content-type": "application/x-protobuf"}
REJECTED = metrics_pb.ExportMetricsServiceResponse(
    partial_success={"rejected_data_points": 9, "error_message": "out of order"}
).SerializeToString()
WARNED = metrics_pb.ExportMetricsServiceResponse(
    partial_success={"error_message": "old names"}
).SerializeToString()


def test_each_outage_is_logged_with_its_reason_and_its_end():
    answers = (
        (401, {}, b""),
        (401, {}, b""),
        (200, PROTOBUF, WARNED),
        (200, PROTOBUF, REJECTED),
        (200, {"content-type": "text/html"}, b"<html>log in</html>"),
        (200, PROTOBUF, b"\xff"),
    )
    with Scripted(*answers) as collector, structlog.testing.capture_logs() as logs:
        url = f"{collector.url}/SECRET".replace("://", "://u:SECRET@")
        counted = pushing(collector.ended, endpoint=url)
    assert counted["metrics", "failed"] == 5
    events = [
        (e["event"], e.get("reason", ""))
        for e in logs
        if e["collector"] == collector.address
    ]
    assert [event for event, _ in events] == [
        "otlp_push_failed",
        "otlp_push_recovered",
        "otlp_push_failed",
        "otlp_push_recovered",
    ]
    assert "Unauthorized" in events[0][1]
    assert "rejected 9: out of order" in events[2][1]
    assert "SECRET" not in str(logs)


class Logged:
    """Waits for the first event about a collector."""

    def __init__(self, logs, address):
        self.logs, self.address = logs, address

    def first(self):
        return next((e for e in self.logs if e["collector"] == self.address), None)

    def wait(self, seconds):
        return wait_until(self.first, seconds=seconds)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_reason_of_a_collector_that_is_away_holds_no_secret(protocol):
    with (
        socket.socket() as silent,
        structlog.testing.capture_logs() as logs,
    ):
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        url = f"http://u:SECRET@{address}/SECRET?x=SECRET"
        logged = Logged(logs, address)
        pushing(logged, endpoint=url, protocol=protocol)
    assert logged.first()["event"] == "otlp_push_failed"
    assert len(logged.first()["reason"]) > len("unknown")
    assert "SECRET" not in str(logs)


def test_the_environment_changes_no_push(monkeypatch):
    variables = {
        "OTEL_EXPORTER_OTLP_HEADERS": "x-env=leaked",
        "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "x-env=leaked",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": "/none",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with Scripted() as collector:
        pushing(collector.ended, endpoint=collector.url)
    assert not any("x-env" in asked.headers for asked in collector.received)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_private_authority_of_the_collector_is_trusted_if_configured(
    protocol, tmp_path
):
    authority = Authority(tmp_path / "own")
    chain = authority.sign("collector")
    key = chain.with_suffix(".key")
    tls = {"ca_file": authority.file}
    if protocol == "http":
        with Scripted() as collector:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(chain, key)
            server = collector._server
            server.socket = context.wrap_socket(server.socket, server_side=True)
            url = f"https://{collector.address}"
            counted = pushing(collector.ended, endpoint=url, tls=tls)
    else:
        came = threading.Event()

        class Servicer(metrics_grpc.MetricsServiceServicer):
            def Export(self, _request, _context):  # noqa: N802 - gRPC's name
                came.set()
                return metrics_pb.ExportMetricsServiceResponse()

        server = grpc.server(ThreadPoolExecutor(1))
        metrics_grpc.add_MetricsServiceServicer_to_server(Servicer(), server)
        credentials = grpc.ssl_server_credentials(
            [(key.read_bytes(), chain.read_bytes())]
        )
        port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        url = f"https://127.0.0.1:{port}"
        counted = pushing(came, endpoint=url, protocol=protocol, tls=tls)
        server.stop(0)
    assert counted["metrics", "failed"] == 0
