"""Tritons that trace, slow traffic to them, and what a sidecar says of it."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import numpy as np
import pytest
from monitoring import free_port
from receiver import Receiver

from exporter.errors import TritonError
from exporter.features.traces.traced_request import PHASES
from exporter.histograms.quantiles import minimum_count
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient
from exporter.triton.protocol_types import InferRequest

MODELS = Path(__file__).parents[1] / "data" / "models"
DEMO = Path(__file__).parents[2] / "deploy" / "models"
PIPELINE = """
platform: "ensemble"
max_batch_size: 8
input [{ name: "x", data_type: TYPE_FP32, dims: [8] }]
output [{ name: "y", data_type: TYPE_FP32, dims: [8] }]
ensemble_scheduling { step [
  { model_name: "double" model_version: -1
    input_map { key: "x" value: "x" } output_map { key: "y" value: "middle" } },
  { model_name: "second" model_version: -1
    input_map { key: "x" value: "middle" } output_map { key: "y" value: "y" } }
] }
"""
CALLER = """
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        call = pb.InferenceRequest(
            model_name="double",
            requested_output_names=["y"],
            inputs=[pb.get_input_tensor_by_name(request, "x")],
            trace=request.trace(),
        )
        y = pb.get_output_tensor_by_name(call.exec(), "y").as_numpy()
        return pb.InferenceResponse([pb.Tensor("y", y)])
"""
"""A model that asks `double`, within its trace and without its request id."""
CALLER_CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "x", data_type: TYPE_FP32, dims: [8] }]
output [{ name: "y", data_type: TYPE_FP32, dims: [8] }]
instance_group [{ kind: KIND_CPU, count: 1 }]
"""
# Each traced request is a risk to this Triton (server#7795), so that they are few.
PAUSE_SECONDS = 1 / 150
REQUESTS = 400
FEW = 20


class Collector(Receiver):
    """A collector before a tap, which keeps the bodies that the tap accepted."""

    def __init__(self, port):
        self.bodies = []
        self.tap_port = free_port()
        self._tap = HttpClient(f"127.0.0.1:{self.tap_port}")
        super().__init__(port=port)

    def answer(self, asked):
        kind = asked.headers["content-type"]
        with contextlib.suppress(TritonError):
            self._tap.post(asked.path, asked.body, timeout_seconds=5)
            self.bodies.append((kind, asked.body))
        return b"{}", {"content-type": kind}

    def close(self):
        super().close()
        self._tap.close()

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


class Sender:
    """Production traffic over gRPC, slowly."""

    def __init__(self, address):
        self.client = GrpcClient(address)

    def rows(self, model, count, request_id="client"):
        x = np.ones((1, 8), np.float32)
        for _ in range(count):
            request = InferRequest(model, "", request_id, {"x": x}, {"x": "FP32"})
            self.client.infer(request, timeout_seconds=10)
            time.sleep(PAUSE_SECONDS)


def traced(repository, *options):
    arguments = [
        part
        for option in ("rate=1", "level=TIMESTAMPS", *options)
        for part in ("--trace-config", option)
    ]
    return EmbeddedTriton(repository, arguments=arguments)


def files_of_five(path):
    return f"triton,file={path}", "triton,log-frequency=5"


def traces_config(settings, server, port, **changes):
    collector = {"kind": "traces", "interval_seconds": 0.3, **changes}
    config = settings(server)
    config["collectors"].append(collector)
    config["listen"]["tap"] = {"port": port}
    return config


def records(page, outcome):
    return page.sum("tritonwatch_trace_records_total", outcome=outcome)


def requests(page, model):
    return page.sum("triton_request_duration_seconds_count", model=model)


def assert_phases_add_up(page, model):
    total = page.value("triton_request_duration_seconds_sum", model=model)
    phases = page.all("triton_request_phase_duration_seconds_sum", model=model)
    assert {labels["phase"] for labels, _ in phases} == set(PHASES)
    assert sum(value for _, value in phases) == pytest.approx(total, rel=1e-6)


def assert_quantiles_match(page, model, seconds):
    """Within the histogram's bucket of the exact quantiles of the same traces."""
    shown = page.all("triton_request_latency_seconds", model=model)
    assert {labels["quantile"] for labels, _ in shown} >= {"0.5", "0.9", "0.95", "0.99"}
    for labels, value in shown:
        q = float(labels["quantile"])
        exact = np.quantile(seconds, q, method="inverted_cdf")
        assert value == pytest.approx(exact, rel=0.012)
        worth = page.value(
            "triton_request_latency_effective_samples",
            model=model,
            quantile=labels["quantile"],
        )
        if worth < minimum_count(q):  # all of them came within a few slots of time
            bounds = page.all("triton_request_latency_ci_seconds", model=model)
            assert labels["quantile"] not in {found["quantile"] for found, _ in bounds}
            continue
        low, high = (
            page.value(
                "triton_request_latency_ci_seconds",
                model=model,
                quantile=labels["quantile"],
                bound=bound,
            )
            for bound in ("lower", "upper")
        )
        assert low <= value <= high
