"""What is pushed over OTLP is what /metrics shows, and a bad collector costs nothing."""

from __future__ import annotations

import gzip
import signal
import socket
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import (
    metrics_service_pb2 as metrics_pb,
)
from opentelemetry.proto.collector.metrics.v1 import (
    metrics_service_pb2_grpc as metrics_grpc,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from receiver import Asked, Receiver
from waiting import patience, wait_until

from exporter.triton.embedded import EmbeddedTriton

pytestmark = pytest.mark.triton

MODELS = Path(__file__).parents[1] / "data" / "models"


class Collector(Receiver):
    """A collector on loopback that keeps what it is sent, over HTTP and over gRPC."""

    def __init__(self) -> None:
        self.metrics: deque[metrics_pb.ExportMetricsServiceRequest] = deque(maxlen=50)
        self.spans: deque = deque(maxlen=5000)
        self.triton_spans: deque[bytes] = deque(maxlen=100)
        collector = self
        super().__init__()
        self._grpc = grpc.server(ThreadPoolExecutor(2))

        class Servicer(metrics_grpc.MetricsServiceServicer):
            def Export(self, request, _context):  # noqa: N802 - gRPC's name
                collector.metrics.append(request)
                return metrics_pb.ExportMetricsServiceResponse()

        metrics_grpc.add_MetricsServiceServicer_to_server(Servicer(), self._grpc)
        grpc_port = self._grpc.add_insecure_port("127.0.0.1:0")
        self.endpoints = {
            "http": self.url,
            "grpc": f"http://127.0.0.1:{grpc_port}",
        }
        self._grpc.start()

    def answer(self, asked: Asked) -> tuple[bytes, dict[str, str]]:
        path, headers, body = asked
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if path == "/triton":
            self.triton_spans.append(body)
        elif path == "/v1/metrics":
            self.metrics.append(metrics_pb.ExportMetricsServiceRequest.FromString(body))
        else:
            request = trace_pb.ExportTraceServiceRequest.FromString(body)
            for part in request.resource_spans:
                for scope in part.scope_spans:
                    self.spans.extend(scope.spans)
        return b"", {}

    def close(self) -> None:
        super().close()
        self._grpc.stop(0).wait(5)

    def wait(self, what: str, count: int = 1) -> None:
        wait_until(lambda: len(getattr(self, what)) >= count, f"{count} {what} arrive")

    def pushed(self) -> dict:
        """The latest push as metric name -> metric."""
        return {
            metric.name: metric
            for part in self.metrics[-1].resource_metrics
            for scope in part.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def collector():
    with Collector() as running:
        yield running


def otlp(endpoint: str, protocol: str = "http", **more: object) -> dict[str, object]:
    return {
        "endpoint": endpoint,
        "protocol": protocol,
        "interval_seconds": 0.5,
        "timeout_seconds": 1,
        **more,
    }


def points(metric):
    return getattr(metric, metric.WhichOneof("data")).data_points


def attributes(point) -> dict[str, str]:
    return {item.key: item.value.string_value for item in point.attributes}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_every_exposed_metric_arrives_with_the_same_series(
    protocol, playground, settings, start_sidecar, collector
) -> None:
    sidecar = start_sidecar(
        settings(
            playground,
            otlp=otlp(
                collector.endpoints[protocol],
                protocol,
                resource={"deployment.environment": "test"},
            ),
        )
    )
    # Until no metric is still to come: medians come last, with enough probes.
    medians = "triton_probe_latency_seconds"
    sidecar.wait(lambda p: len(p.all(medians, quantile="0.5")) == 4, 40)
    sidecar.settle()
    seen = len(collector.metrics)
    collector.wait("metrics", seen + 2)
    page = sidecar.page()
    pushed = collector.pushed()
    exposed = {
        name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
        if name.endswith(("_bucket", "_count", "_sum"))
        else name
        for name in page.series
    }
    assert pushed.keys() == exposed
    for name in ("triton_model_ready", "triton_probe_total", "process_open_fds"):
        assert {tuple(sorted(attributes(p).items())) for p in points(pushed[name])} == {
            tuple(sorted(labels.items())) for labels, _ in page.series[name]
        }
    resource = {
        item.key: item.value.string_value
        for item in collector.metrics[-1].resource_metrics[0].resource.attributes
    }
    assert resource["service.name"] == "tritonwatch"
    assert resource["deployment.environment"] == "test"


def test_latencies_arrive_as_exponential_histograms_of_the_same_observations(
    playground, settings, start_sidecar, collector
) -> None:
    sidecar = start_sidecar(
        settings(playground, otlp=otlp(collector.endpoints["http"]))
    )
    sidecar.wait(lambda p: p.sum("triton_probe_total", outcome="ok") > 12)
    collector.wait("metrics", len(collector.metrics) + 2)
    pushed = collector.pushed()
    metric = pushed["triton_probe_duration_seconds"]
    ok = {
        (attributes(p)["model"], attributes(p)["protocol"]): p.as_double or p.as_int
        for p in points(pushed["triton_probe_total"])
        if attributes(p)["outcome"] == "ok"
    }
    assert metric.WhichOneof("data") == "exponential_histogram"
    assert metric.unit == "s"
    assert len(points(metric)) == len(ok)
    for point in points(metric):
        labels = attributes(point)
        assert point.scale == 5
        assert sum(point.positive.bucket_counts) + point.zero_count == point.count
        assert point.count == ok[labels["model"], labels["protocol"]]
        base = 2 ** (2**-5)
        first = next(i for i, n in enumerate(point.positive.bucket_counts) if n)
        lower = base ** (point.positive.offset + first)
        assert lower <= point.min <= lower * base * (1 + 1e-9)


def test_another_push_interval_leaves_the_start_of_every_total(
    playground, settings, start_sidecar, collector, monkeypatch
) -> None:
    monkeypatch.setenv("OTEL_PUSH_SECONDS", "0.7")
    config = settings(playground, otlp=otlp(collector.endpoints["http"]))
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: page.sum("triton_probe_total", outcome="ok") > 3)
    collector.wait("metrics", 3)
    before = starts(collector.pushed())
    config["otlp"]["interval_seconds"] = "${env:OTEL_PUSH_SECONDS}"
    sidecar.write(config)
    sidecar.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "reloaded" in sidecar.log, lambda: sidecar.log)
    collector.wait("metrics", len(collector.metrics) + 3)
    after = starts(collector.pushed())
    # The pusher itself begins anew, and its own total with it.
    kept = {s: start for s, start in before.items() if "otlp_exports" not in s[0]}
    assert len(kept) > 10
    assert {series: after.get(series) for series in kept} == kept


def starts(pushed: dict) -> dict[tuple, int]:
    """The start time of each series of each cumulative metric."""
    return {
        (name, *sorted(attributes(point).items())): point.start_time_unix_nano
        for name, metric in pushed.items()
        if metric.WhichOneof("data") != "gauge"
        for point in points(metric)
    }


def test_a_collector_that_is_away_costs_only_its_own_counter(
    playground, settings, start_sidecar, unused_port
) -> None:
    sidecar = start_sidecar(
        settings(playground, otlp=otlp(f"http://127.0.0.1:{unused_port}"))
    )
    exports = "tritonwatch_otlp_exports_total"
    page = sidecar.wait(
        lambda p: p.value(exports, kind="metrics", outcome="failed") > 1, 30
    )
    assert page.value(exports, kind="metrics", outcome="ok") == 0
    assert page.value(
        "tritonwatch_otlp_consecutive_failures", kind="metrics"
    ) == page.value(exports, kind="metrics", outcome="failed")
    assert page.value("triton_up") == 1
    assert min(page.values("triton_model_serving")) == 1
    assert sidecar.log.count("otlp_push_failed") == 1


def test_a_collector_that_never_answers_neither_blocks_nor_delays_the_end(
    playground, settings, start_sidecar
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        sidecar = start_sidecar(
            settings(playground, otlp=otlp(f"http://127.0.0.1:{port}"))
        )
        exports = "tritonwatch_otlp_exports_total"
        sidecar.wait(lambda p: p.value(exports, kind="metrics", outcome="failed") > 0)
        assert sidecar.page().value("triton_up") == 1
        sidecar.process.terminate()
        assert sidecar.process.wait(patience(5)) == 0


def test_triton_continues_the_trace_that_a_probe_began(
    settings, start_sidecar, collector
) -> None:
    arguments = (
        "--trace-config=mode=opentelemetry",
        f"--trace-config=opentelemetry,url={collector.endpoints['http']}/triton",
        "--trace-config=opentelemetry,bsp_schedule_delay=500",
        "--trace-config=rate=0",
        "--trace-config=level=TIMESTAMPS",
    )
    with EmbeddedTriton(MODELS, arguments=arguments) as triton:
        start_sidecar(
            settings(triton, otlp=otlp(collector.endpoints["http"], traces=True))
        )
        collector.wait("spans", 4)
        collector.wait("triton_spans", 2)

        def continued():
            theirs = b"".join(collector.triton_spans).decode().lower()
            ours = {span.trace_id.hex() for span in collector.spans}
            return [trace_id for trace_id in ours if trace_id in theirs]

        wait_until(continued, "a span of Triton in one of our traces")
    names = {span.name for span in collector.spans}
    assert "probe double" in names
