"""Options of Triton that change what we may ask, and what it lists."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from commands import COMMAND
from small_models import config, ensemble_of, write_model
from waiting import patience, wait_until

from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

MODEL = Path(__file__).parents[1] / "data" / "models" / "double"
HEADERS = {"secret": "s3", "triton-grpc-protocol-secret": "s3"}
EXPECTED = "restricted, expecting header"
SUCCESS = "tritonwatch_collector_success"


@pytest.fixture
def start(tmp_path, settings, start_sidecar):
    """Start a Triton with these options, and a sidecar beside it."""
    shutil.copytree(MODEL, tmp_path / "models" / "double")
    with contextlib.ExitStack() as servers:

        def started(*arguments, headers=None):
            triton = EmbeddedTriton(tmp_path / "models", arguments=arguments)
            server = servers.enter_context(triton)
            config = settings(server, probe={"timeout_seconds": 20.0})
            config["target"]["headers"] = headers or {}
            return start_sidecar(config)

        yield started


def restricting(protocols):
    options = ["grpc-restricted-protocol"]
    if protocols != "health":  # EmbeddedTriton waits for it over HTTP
        options.append("http-restricted-api")
    return [f"--{option}={protocols}:secret=s3" for option in options]


def findings(sidecar):
    return json.loads(sidecar.get("/api/v1/status").body)["findings"]


@pytest.mark.parametrize("headers", [{}, HEADERS], ids=["without", "with"])
def test_a_model_that_we_may_not_ask_is_unproven_and_not_down(headers, start):
    sidecar = start(*restricting("inference"), headers=headers)
    outcome = "ok" if headers else "configuration"
    page = sidecar.wait(
        lambda page: all(
            page.sum("triton_probe_total", protocol=protocol, outcome=outcome)
            for protocol in ("grpc", "http")
        )
    )
    probes = page.sum("triton_probe_total")
    assert page.sum("triton_probe_total", outcome=outcome) == probes
    assert page.values("triton_model_serving") == ([1] if headers else [])
    # What was refused never reached the model, and what reached it is no production.
    assert sidecar.settle().sum("triton_requests_total") == 0
    told = [f["text"] for f in findings(sidecar)]
    assert [EXPECTED in text for text in told] == ([] if headers else [True])


@pytest.mark.parametrize(
    ("protocols", "subject", "up"),
    [
        ("statistics", "statistics", 1),
        ("model-repository", "server", 1),
        ("metadata", "server", 1),
        ("health", "The server", None),
    ],
)
def test_what_we_may_not_read_is_named_with_the_header_it_wants(
    protocols, subject, up, start
):
    sidecar = start(*restricting(protocols))
    sidecar.wait(lambda page: 0 in page.values("tritonwatch_collector_success"))

    def named():
        """Return the subjects whose finding names the header."""
        return [f["subject"] for f in findings(sidecar) if EXPECTED in f["text"]]

    # On a busy machine another collector may have failed first.
    wait_until(lambda: subject in named(), named)
    assert sidecar.page().value("triton_up") == up


def test_an_audit_says_what_it_may_not_ask(tmp_path):
    shutil.copytree(MODEL, tmp_path / "models" / "double")
    with EmbeddedTriton(tmp_path / "models", arguments=restricting("health")) as server:
        target = {"grpc": server.grpc, "http": server.http, "metrics": server.metrics}
        (tmp_path / "c.yaml").write_text(json.dumps({"target": target}), "utf-8")
        ended = subprocess.run(
            [COMMAND, "audit", "--config", tmp_path / "c.yaml", "--duration", "5"],
            capture_output=True,
            text=True,
            timeout=patience(120),
            check=False,
        )
    assert "Traceback" not in ended.stderr
    assert EXPECTED in ended.stdout + ended.stderr


def test_a_name_in_two_namespaces_costs_other_models_nothing(
    tmp_path, settings, start_sidecar
):
    models, more = tmp_path / "models", tmp_path / "more"
    write_model(models, "twice", config())
    write_model(models, "pipeline", ensemble_of("twice"))
    write_model(more, "twice", config())
    arguments = ["--model-namespacing=true", f"--model-repository={more}"]
    arguments.append("--repository-poll-secs=1")
    shutil.copytree(MODEL, models / "double")
    with EmbeddedTriton(models, arguments=arguments, model_control="poll") as server:
        sidecar = start_sidecar(settings(server))
        requests = "triton_requests_total"
        page = sidecar.wait(
            lambda page: (
                {"double", "pipeline"} <= page.label(requests, "model")
                and page.value("triton_model_serving", model="double") == 1
            )
        )
        assert len(page.all("triton_model_ready", model="twice")) == 1
        assert page.value(SUCCESS, collector="statistics") == 1
        wait_until(lambda: "2 identifiers of model 'twice'" in sidecar.log)
        [named] = [f for f in findings(sidecar) if "2 identifiers" in f["text"]]
        assert named["subject"] == "twice"

        client = GrpcClient(server.grpc)
        for _ in range(30):
            inputs = {"x": np.ones(1, np.float32)}, {"x": "FP32"}
            client.infer(InferRequest("pipeline", "1", "c", *inputs), timeout_seconds=9)
        shutil.rmtree(more / "twice")
        sidecar.wait(lambda page: page.all(requests, model="twice"))
        page = sidecar.settle(4)
        # These came before anything could count them.
        assert page.sum(requests, model="twice") == 0
        assert page.sum(requests, model="pipeline") == 30
