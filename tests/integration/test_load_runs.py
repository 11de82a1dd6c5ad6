"""A load run as the sidecar, Grafana and an OpenTelemetry collector see it."""

from __future__ import annotations

import gzip
import http.server
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

from exporter.testing import FakeModel, FakeTriton


class Receiver:
    """An HTTP server that keeps what is POSTed: no Grafana is to be had here."""

    def __init__(self, status: int = 200) -> None:
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {k.lower(): v for k, v in self.headers.items()}
                outer.received.append((self.path, headers, body))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver():
    server = Receiver()
    yield server
    server.close()


@pytest.fixture
def fake():
    with FakeTriton([FakeModel("m")]) as server:
        yield server


def command(tritonwatch, *arguments: str) -> list[str]:
    return [tritonwatch, "load", "run", "--quiet", *arguments]


@pytest.fixture
def tritonwatch() -> str:
    return str(Path(sys.executable).with_name("tritonwatch"))


def test_a_run_appears_in_the_sidecar_and_goes_with_its_end(
    start_sidecar, settings, fake, unused_port, tritonwatch
) -> None:
    config = settings(fake)
    config["listen"]["tap"] = {"address": "127.0.0.1", "port": 0}
    config["collectors"].append({"kind": "runs", "interval_seconds": 0.2})
    sidecar = start_sidecar(config)
    tap = tap_of(sidecar)
    run = subprocess.Popen(
        command(
            tritonwatch,
            *("--address", fake.grpc, "--model", "m", "--name", "friday"),
            *("--profile", "constant", "--rate", "20", "--duration", "4"),
            *("--sidecar", f"http://{tap}"),
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        page = sidecar.wait(lambda p: bool(p.all("triton_run_info")), 30)
        (labels, value) = page.all("triton_run_info")[0]
        assert value == 1
        assert labels["run"].startswith("friday-")
        assert (labels["kind"], labels["profile"]) == ("load", "constant")
        out, err = run.communicate(timeout=60)
    finally:
        run.kill()
        run.wait()
    # A busy machine may make it invalid.
    assert (run.returncode in (0, 3), err) == (True, ""), out
    sidecar.wait(lambda p: not p.all("triton_run_info"), 10)


def tap_of(sidecar) -> str:
    found = re.search(r"event=tap_listening .*address=(\S+)", sidecar.log)
    assert found, sidecar.log
    return found[1]


def test_a_run_is_annotated_in_grafana_and_becomes_a_span(
    fake, receiver, tritonwatch, tmp_path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n", "utf-8")
    done = subprocess.run(
        command(
            tritonwatch,
            *("--address", fake.http, "--protocol", "http", "--model", "m"),
            *("--concurrency", "1", "--duration", "1"),
            *("--grafana", receiver.url, "--grafana-token-file", str(token)),
            *("--otlp", receiver.url),
        ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    by_path = {path: (headers, body) for path, headers, body in receiver.received}
    headers, body = by_path["/api/annotations"]
    annotation = json.loads(body)
    assert headers["authorization"] == "Bearer secret"
    assert 900 <= annotation["timeEnd"] - annotation["time"] <= 60_000
    assert "VALID" in annotation["text"]
    headers, body = by_path["/v1/traces"]
    span = span_of(body, headers.get("content-encoding", ""))
    assert span.name == "tritonwatch load"
    names = {a.key: a.value for a in span.attributes}
    assert names["tritonwatch.run.profile"].string_value == "closed"
    assert names["tritonwatch.run.requests"].double_value > 0
    assert span.end_time_unix_nano > span.start_time_unix_nano


def span_of(body: bytes, encoding: str):
    raw = gzip.decompress(body) if encoding == "gzip" else body
    request = ExportTraceServiceRequest.FromString(raw)
    return request.resource_spans[0].scope_spans[0].spans[0]


def test_whoever_does_not_listen_costs_a_sentence_and_not_the_run(
    fake, unused_port, tritonwatch
) -> None:
    done = subprocess.run(
        command(
            tritonwatch,
            *("--address", fake.grpc, "--model", "m"),
            *("--concurrency", "1", "--duration", "0.5"),
            *("--sidecar", f"http://127.0.0.1:{unused_port}"),
        ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "was not told of the run" in done.stderr
    assert "right answers" in done.stdout
