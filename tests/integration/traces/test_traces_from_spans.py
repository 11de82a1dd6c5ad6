"""From the real Triton's spans to /metrics."""

from __future__ import annotations

import http.server
import json
import threading
import time

import pytest
from traced_tritons import (
    FEW,
    REQUESTS,
    Sender,
    assert_phases_add_up,
    assert_quantiles_match,
    records,
    requests,
    traces_config,
)

pytestmark = pytest.mark.triton


class Collector:
    """A collector that keeps the bodies it was sent."""

    def __init__(self):
        bodies = self.bodies = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                length = int(self.headers["content-length"])
                bodies.append((self.headers["content-type"], self.rfile.read(length)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/traces"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def seconds(self, model):
        """Arrival to last answer of every request to `model`, from the raw spans."""
        spans = [
            span
            for _, body in self.bodies
            for resource in json.loads(body)["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]
        roots = {s["spanId"]: s for s in spans if s["name"] == "InferRequest"}
        found = []
        for span in spans:
            if span["name"] == model and span["parentSpanId"] in roots:
                at = {}
                for event in roots[span["parentSpanId"]]["events"]:
                    at[event["name"]] = int(event["timeUnixNano"])
                begin = at.get("GRPC_WAITREAD_END") or at["HTTP_RECV_START"]
                end = at.get("GRPC_SEND_END") or at["HTTP_SEND_END"]
                found.append((end - begin) / 1e9)
        return found


def test_spans_of_the_real_triton_become_the_latency_of_production(
    spans_server, settings, start_sidecar
):
    triton, port = spans_server
    collector = Collector()
    config = traces_config(
        settings, triton, port, otlp={"forward": collector.url}, window_seconds=600
    )
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: page.sum("triton_probe_total", outcome="ok") > 10)
    sender = Sender(triton.grpc)
    sender.rows("double", REQUESTS)
    sender.streams(FEW)
    page = sidecar.wait(
        lambda page: (
            requests(page, "double") == REQUESTS and requests(page, "stream") == FEW
        )
    )
    assert_phases_add_up(page, "double")
    assert_phases_add_up(page, "stream")
    exact = collector.seconds("double")
    own = len(exact) - REQUESTS
    assert own > 0, "the probes of this test leave spans as well"
    assert records(page, "own") >= own
    for outcome in ("invalid", "unknown_model", "partial", "duplicate"):
        assert records(page, outcome) == 0

    sender.rows("pipeline", FEW)
    page = sidecar.wait(lambda page: requests(page, "pipeline") == FEW)
    assert requests(page, "double") == REQUESTS
    assert requests(page, "second") == 0
    assert records(page, "child") == 2 * FEW
    queued = "triton_request_phase_duration_seconds_count"
    assert page.value(queued, model="second", phase="queue") == FEW
    assert page.value(queued, model="double", phase="queue") == REQUESTS + FEW
    told = {"source": "otlp_forward", "outcome": "forwarded"}
    sidecar.wait(
        lambda page: (
            page.value("tritonwatch_tap_requests_total", **told)
            == len(collector.bodies)
        )
    )
    assert {kind for kind, _ in collector.bodies} == {"application/json"}
    collector.close()


def test_quantiles_of_spans_are_those_of_the_very_requests(
    spans_server, settings, start_sidecar
):
    triton, port = spans_server
    collector = Collector()
    config = traces_config(settings, triton, port, otlp={"forward": collector.url})
    config["probes"] = []
    # What earlier tests left in Triton's buffer has gone by then.
    time.sleep(0.5)
    sidecar = start_sidecar(config)
    Sender(triton.grpc).rows("double", REQUESTS)
    page = sidecar.wait(lambda page: requests(page, "double") >= REQUESTS)
    assert_quantiles_match(page, "double", collector.seconds("double"))
    lines = sidecar.get("/metrics", accept="application/openmetrics-text").text
    exemplars = [line for line in lines.splitlines() if '# {trace_id="' in line]
    assert exemplars
    told = b"".join(body for _, body in collector.bodies).decode()
    for line in exemplars:
        trace_id = line.partition('# {trace_id="')[2].partition('"')[0]
        assert f'"traceId":"{trace_id}"' in told
    collector.close()
