"""Both roads from the real Triton's traces to /metrics, and its sampling under control."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import http.server
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from parts import require_triton

from exporter.traces.model import PHASES
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.model import InferRequest

pytestmark = [pytest.mark.triton, pytest.mark.timeout(120)]

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
# Tracing every request of a server under load kills this Triton (server#7795).
PAUSE_SECONDS = 1 / 150
REQUESTS = 400
FEW = 20
# Triton writes a request id into its trace files as it came.
HOSTILE_ID = 'a"}],"x":[{\\\n\x01'


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


class Sender:
    """Production traffic over gRPC, slowly."""

    def __init__(self, address):
        self.client = GrpcClient(address)

    def rows(self, model, count, request_id="client"):
        x = np.ones((1, 8), np.float32)
        for _ in range(count):
            self._send(self.client.infer, model, {"x": x}, request_id)

    def streams(self, count):
        values = np.ones(3, np.float32)
        for _ in range(count):
            self._send(self.client.infer_stream, "stream", {"values": values}, "client")

    def _send(self, call, model, inputs, request_id):
        types = dict.fromkeys(inputs, "FP32")
        call(InferRequest(model, "", request_id, inputs, types), timeout_seconds=10)
        time.sleep(PAUSE_SECONDS)


def free_port():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return holder.getsockname()[1]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    require_triton()
    folder = tmp_path_factory.mktemp("traced")
    shutil.copytree(MODELS / "double", folder / "double")
    shutil.copytree(MODELS / "double", folder / "second")
    shutil.copytree(DEMO / "stream", folder / "stream")
    (folder / "pipeline" / "1").mkdir(parents=True)
    (folder / "pipeline" / "config.pbtxt").write_text(PIPELINE, "ascii")
    return folder


def traced(repository, *options):
    arguments = [
        part
        for option in ("rate=1", "level=TIMESTAMPS", *options)
        for part in ("--trace-config", option)
    ]
    return EmbeddedTriton(repository, arguments=arguments)


def files_of_five(path):
    return f"triton,file={path}", "triton,log-frequency=5"


@pytest.fixture(scope="module")
def spans_server(repository):
    """A Triton that sends spans to the port that comes with it."""
    port = free_port()
    url = f"opentelemetry,url=http://127.0.0.1:{port}/v1/traces"
    quick = "opentelemetry,bsp_schedule_delay=300"
    with traced(repository, "mode=opentelemetry", url, quick) as triton:
        yield triton, port


@pytest.fixture(scope="module")
def files_server(repository, tmp_path_factory):
    """A Triton that writes files of five traces to the path that comes with it."""
    path = tmp_path_factory.mktemp("traces") / "trace.json"
    with traced(repository, *files_of_five(path)) as triton:
        yield triton, path


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


def test_trace_files_of_the_real_triton_become_the_same(
    files_server, settings, start_sidecar
):
    triton, path = files_server
    sender = Sender(triton.grpc)
    sender.rows("double", FEW, request_id="before the sidecar")
    config = traces_config(settings, triton, 0, otlp=None, files={"path": str(path)})
    config["probes"] = []
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: records(page, "request") == 0)
    sender.rows("double", REQUESTS)
    sender.rows("double", 5, request_id=HOSTILE_ID)
    sender.streams(FEW)
    sender.rows("pipeline", FEW)
    page = sidecar.wait(lambda page: requests(page, "pipeline") == FEW)
    assert requests(page, "double") == REQUESTS + 5
    assert requests(page, "stream") == FEW
    assert records(page, "child") == 2 * FEW
    for outcome in ("invalid", "malformed", "unknown_model", "partial", "duplicate"):
        assert records(page, outcome) == 0
    assert_phases_add_up(page, "stream")
    assert_quantiles_match(page, "double", file_seconds(path, "before the sidecar"))
    assert len(list(path.parent.iterdir())) > REQUESTS / 5, "nothing was deleted"


def file_seconds(path, left_out):
    """Arrival to answer of the clients' requests to `double`, by a JSON parser."""
    seconds = []
    for file in path.parent.iterdir():
        who, at = {}, {}
        text = file.read_text("utf-8").replace(HOSTILE_ID, "hostile")
        for record in json.loads(text):
            if "model_name" in record:
                who[record["id"]] = record
            for stamp in record.get("timestamps", ()):
                at.setdefault(record["id"], {})[stamp["name"]] = stamp["ns"]
        for key, record in who.items():
            mine = (record["model_name"], record.get("parent_id", 0)) == ("double", 0)
            if mine and record.get("request_id") != left_out:
                ns = at[key]["GRPC_SEND_END"] - at[key]["GRPC_WAITREAD_END"]
                seconds.append(ns / 1e9)
    return seconds


def test_the_owner_of_trace_files_deletes_what_was_counted(
    files_server, settings, start_sidecar
):
    triton, path = files_server
    sender = Sender(triton.grpc)
    sender.rows("double", 5, request_id="lies there before the sidecar")
    files = {"path": str(path), "owner": True, "settle_seconds": 0.5}
    config = traces_config(settings, triton, 0, otlp=None, files=files)
    config["probes"] = []
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: requests(page, "double") >= 5)
    before = requests(sidecar.page(), "double")
    sender.rows("double", 50)
    page = sidecar.wait(lambda page: requests(page, "double") == before + 50)
    assert page.sum("tritonwatch_trace_files_total", outcome="read") >= 10
    assert list(path.parent.iterdir()) == []


def trace_rate(client, model):
    found = client.trace_settings(model, timeout_seconds=5)
    return found["trace_rate"], found["trace_level"]


CONTROL = {"control": True, "samples_per_minute": 120}


@pytest.mark.parametrize("server", ["files_server", "spans_server"])
def test_control_sets_rates_that_follow_the_traffic_and_puts_them_back(
    server, request, settings, start_sidecar
):
    triton, _ = request.getfixturevalue(server)
    client = GrpcClient(triton.grpc)
    client.update_trace_settings("second", {"trace_rate": ["77"]}, timeout_seconds=5)
    before = {m: trace_rate(client, m) for m in ("double", "second", "")}
    config = traces_config(settings, triton, 0, **CONTROL, force=True)
    config["collectors"][-1]["interval_seconds"] = 1.0
    config["probes"] = []
    sidecar = start_sidecar(config)
    shown = "triton_trace_sampling_rate"
    sidecar.wait(lambda page: page.value(shown, model="second") == 1)
    assert trace_rate(client, "second") == (("1",), ("TIMESTAMPS",))
    sender = Sender(triton.grpc)
    deadline = time.monotonic() + 15
    while sidecar.page().value(shown, model="double") == 1:
        assert time.monotonic() < deadline
        sender.rows("double", 20)
    rate = int(sidecar.page().value(shown, model="double"))
    assert rate > 5
    assert all(rate % divisor for divisor in range(2, rate))
    assert trace_rate(client, "double")[0] == (str(rate),)
    assert trace_rate(client, "") == before[""]
    code, _ = sidecar.end(signal.SIGTERM)
    assert code == 0
    assert {m: trace_rate(client, m) for m in ("double", "second", "")} == before
    client.update_trace_settings("second", {"trace_rate": []}, timeout_seconds=5)


def test_control_is_refused_on_a_triton_that_can_crash(
    files_server, settings, start_sidecar
):
    triton, _ = files_server
    client = GrpcClient(triton.grpc)
    before = trace_rate(client, "double")
    sidecar = start_sidecar(traces_config(settings, triton, 0, **CONTROL))
    active = "tritonwatch_trace_control_active"
    sidecar.wait(lambda page: page.value(active) == 0)
    assert "server#7795" in sidecar.log
    assert sidecar.page().all("triton_trace_sampling_rate") == []
    assert trace_rate(client, "double") == before


def test_a_killed_controller_is_undone_by_the_next(
    files_server, settings, start_sidecar, tmp_path
):
    triton, _ = files_server
    client = GrpcClient(triton.grpc)
    client.update_trace_settings("double", {"trace_rate": ["77"]}, timeout_seconds=5)
    journal = tmp_path / "journal.json"
    config = traces_config(
        settings, triton, 0, **CONTROL, force=True, journal=str(journal)
    )
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: page.all("triton_trace_sampling_rate"))
    assert trace_rate(client, "double")[0] != ("77",)
    sidecar.end(signal.SIGKILL)
    assert journal.exists()
    again = start_sidecar(config)
    again.wait(lambda page: page.all("triton_trace_sampling_rate"))
    again.end(signal.SIGTERM)
    assert trace_rate(client, "double")[0] == ("77",)
    assert not journal.exists()
    client.update_trace_settings("double", {"trace_rate": []}, timeout_seconds=5)


def test_a_reload_puts_the_rates_back_before_the_next_settings_count(
    files_server, settings, start_sidecar
):
    triton, _ = files_server
    client = GrpcClient(triton.grpc)
    client.update_trace_settings("double", {"trace_rate": ["77"]}, timeout_seconds=5)
    config = traces_config(settings, triton, 0, **CONTROL, force=True)
    config["probes"] = []
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: page.all("triton_trace_sampling_rate"))
    collector = config["collectors"][-1]
    collector["samples_per_minute"] = 600
    sidecar.write(config)
    sidecar.process.send_signal(signal.SIGHUP)
    sidecar.wait(lambda page: not page.all("triton_trace_sampling_rate"))
    sidecar.wait(lambda page: page.all("triton_trace_sampling_rate"))
    assert trace_rate(client, "double")[0] == ("1",)
    collector["control"] = False
    sidecar.write(config)
    sidecar.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while trace_rate(client, "double")[0] != ("77",):
        assert time.monotonic() < deadline, sidecar.log
        time.sleep(0.05)
    sidecar.wait(lambda page: not page.all("triton_trace_sampling_rate"))
    client.update_trace_settings("double", {"trace_rate": []}, timeout_seconds=5)


class Nowhere:
    """The addresses of a server that is not there."""

    grpc = http = metrics = "127.0.0.1:9"


def post(port, body, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/traces", body, headers)
        return connection.getresponse().status


JSON = {"content-type": "application/json"}
SIZE = 2 << 20
HOSTILE = {
    "empty lists": (b'{"resourceSpans":[' + b"[]," * (SIZE // 3 - 99) + b"[]]}", JSON),
    "deep": (b"[" * SIZE, JSON),
    "noise": (bytes(range(256)) * (SIZE // 256), JSON),
    "many models": (
        json.dumps(
            {
                "resourceSpans": [
                    {
                        "scopeSpans": [
                            {
                                "spans": [
                                    {
                                        "name": f"m{n}",
                                        "traceId": f"{n:032x}",
                                        "spanId": f"{n:016x}",
                                        "parentSpanId": "f" * 16,
                                        "attributes": [
                                            {
                                                "key": "triton.model_name",
                                                "value": {"stringValue": f"m{n}"},
                                            },
                                        ],
                                        "events": [
                                            {
                                                "name": "REQUEST_START",
                                                "timeUnixNano": "1",
                                            }
                                        ],
                                    }
                                    for n in range(5000)
                                ]
                            }
                        ]
                    }
                ]
            }
        ).encode(),
        JSON,
    ),
    "bomb": (
        gzip.compress(b" " * (100 << 20)),
        {**JSON, "content-encoding": "gzip"},
    ),
    "protobuf of nothing": (
        b"\x0a\x00" * (SIZE // 2),
        {"content-type": "application/x-protobuf"},
    ),
}
ALLOWED_MEGABYTES = 300


def test_hostile_bodies_cost_the_sidecar_an_answer_and_little_memory(
    settings, start_sidecar
):
    port = free_port()
    sidecar = start_sidecar(traces_config(settings, Nowhere, port))
    resident = "process_resident_memory_bytes"
    before = sidecar.wait(lambda page: page.value(resident)).value(resident)
    answers = {}
    for _ in range(5):
        for name, (body, headers) in HOSTILE.items():
            answers[name] = post(port, body, **headers)
    assert answers == {
        "empty lists": 400,
        "deep": 400,
        "noise": 400,
        "many models": 200,
        "bomb": 413,
        "protobuf of nothing": 200,
    }
    refused = "tritonwatch_tap_requests_total"
    page = sidecar.wait(lambda page: page.sum(refused, outcome="malformed") == 15)
    assert page.sum(refused, outcome="too_large") == 5
    assert page.value(resident) - before < ALLOWED_MEGABYTES * 1e6
    assert sidecar.get("/-/healthy").status == 200


def test_a_tap_address_that_is_taken_is_said_and_nothing_runs(
    settings, start_sidecar, tmp_path
):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = tmp_path / "config.yaml"
        file.write_text(json.dumps(traces_config(settings, Nowhere, port)), "ascii")
        ended = subprocess.run(
            [sys.executable, "-m", "exporter.cli", "serve", "--config", str(file)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert ended.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_last_of_a_thousand_is_that_of_the_very_requests(
    repository, settings, start_sidecar, tmp_path_factory
):
    # A Triton of its own: one that was asked before may hold back up to four traces.
    path = tmp_path_factory.mktemp("traces") / "trace.json"
    with traced(repository, *files_of_five(path)) as triton:
        config = traces_config(
            settings, triton, 0, otlp=None, files={"path": str(path)}
        )
        config["probes"] = []
        sidecar = start_sidecar(config)
        sidecar.wait(lambda page: records(page, "request") == 0)
        many = 4000
        Sender(triton.grpc).rows("double", many)
        page = sidecar.wait(lambda page: requests(page, "double") == many)
        shown = page.label("triton_request_latency_seconds", "quantile", model="double")
        assert "0.999" in shown
        assert_quantiles_match(page, "double", file_seconds(path, "nobody"))
