"""`tritonwatch audit` on a real Triton, and how the command ends."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml
from commands import tritonwatch
from fake_triton import FakeModel, FakeTriton, Slow
from production import Production
from waiting import patience

from exporter.commands.audit.audit_command import Report
from exporter.triton.http import HttpClient
from exporter.triton.protocol_types import InferRequest

MODELS = Path(__file__).parents[1] / "data" / "models"
FIXED = "2.60.0"
"""A version without known defects."""


@dataclass(frozen=True)
class Ended:
    """How the command ended and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def report(self):
        return Report.model_validate_json(self.out)

    def finding(self, finding_id, model=""):
        found = [f for f in self.report.findings if f.id == finding_id]
        (one,) = [f for f in found if not model or f.model == model]
        return one

    def ids(self):
        return {f.id for f in self.report.findings}


@pytest.fixture
def audit(tmp_path):
    """Run the command against a server: `audit(server, seconds=4)`, more on a busy machine."""

    def run(server, *arguments, seconds, form="json", **changes):
        target = {"grpc": server.grpc, "http": server.http, "metrics": server.metrics}
        file = tmp_path / "tritonwatch.yaml"
        file.write_text(yaml.safe_dump({"target": target, **changes}), "utf-8")
        given = "--config", file, "--format", form, "--duration", patience(seconds)
        return _run(*map(str, given), *arguments)

    return run


def _run(*arguments):
    done = tritonwatch("audit", *arguments)
    return Ended(done.returncode, done.stdout, done.stderr)


class production(Production):  # noqa: N801 - used like a function
    """One request after the other to one model, for as long as its block lasts."""

    def __init__(
        self, server, model="double", shape=(1, 8), *, pause=0.02, **parameters
    ):
        super().__init__(server.grpc, pause_seconds=pause)
        x = {"x": np.ones(shape, np.float32)}
        self._request = InferRequest(
            model, "", "production", x, {"x": "FP32"}, parameters
        )

    def ask(self, user):  # noqa: ARG002 - there is one
        self.client.infer(self._request, timeout_seconds=5)


@pytest.mark.triton
def test_a_real_server_under_traffic(playground, audit):
    with production(playground):
        ended = audit(playground, seconds=6)
    report = ended.report
    shares = {s.model: s for s in report.time_shares}
    assert shares["double"].source == "window"
    assert shares["double"].requests > 20
    assert 0 < shares["double"].compute_infer < shares["double"].server < 0.5
    assert ended.ids() >= {"models-answer", "headroom"}
    assert not {f.id for f in report.findings if f.severity == "critical"}
    assert report.server_version == playground.triton.version
    answered = ended.finding("models-answer")
    assert {m.name: m.value for m in answered.evidence}["answered every time"] == 2


@pytest.mark.triton
def test_one_instance_for_two_clients_shows_as_waiting(playground, audit):
    clients = [production(playground, "sleepy", (1,), delay_ms=40) for _ in range(4)]
    with clients[0], clients[1], clients[2], clients[3]:
        ended = audit(playground, seconds=4)
    waiting = ended.finding("queue-exceeds-compute", "sleepy")
    assert "instances" in waiting.advice
    assert ended.finding("instances-saturated", "sleepy").severity == "warning"


@pytest.mark.triton
def test_a_delay_paid_for_batches_that_never_come_is_told(
    start_triton, tmp_path, audit
):
    repository = tmp_path / "models"
    shutil.copytree(MODELS / "double", repository / "double")
    config = repository / "double" / "config.pbtxt"
    text = config.read_text("utf-8").replace(
        "dynamic_batching {}",
        "dynamic_batching { max_queue_delay_microseconds: 20000 }\n"
        "instance_group [{ kind: KIND_CPU, count: 2 }]",
    )
    config.write_text(text, "utf-8")
    server = start_triton(repository)
    with production(server):
        ended = audit(server, seconds=4)
    assert "20000" in ended.finding("delay-without-batches", "double").title
    busy = {m.name: m.value for m in ended.finding("headroom", "double").evidence}
    assert busy["instances"] == 2


@pytest.mark.triton
def test_a_killed_stub_is_told_while_triton_says_ready_and_the_advice_repairs_it(
    playground, audit
):
    for pid in playground.triton.stub_pids():
        os.kill(pid, signal.SIGKILL)
    ended = audit(playground, seconds=6)
    assert ended.code == 1
    dead = [f for f in ended.report.findings if f.id == "dead-backend-stub"]
    assert {f.model for f in dead} == {"double", "sleepy"}
    assert {f.severity for f in dead} == {"critical"}
    assert "server-not-ready" not in ended.ids()
    for name in ("double", "sleepy"):
        # It stays UNLOADING for long; the load repairs it at once all the same.
        playground._post(f"/v2/repository/models/{name}/unload")
        playground.model(name, "load")
    assert "dead-backend-stub" not in audit(playground, seconds=3).ids()


@pytest.mark.triton
def test_a_model_that_did_not_load_is_told_with_tritons_reason(
    start_triton, tmp_path, audit
):
    repository = tmp_path / "models"
    shutil.copytree(MODELS, repository)
    broken = repository / "broken" / "1"
    shutil.copytree(MODELS / "double", repository / "broken")
    (broken / "model.py").write_text("raise ValueError('weights are missing')", "utf-8")
    server = start_triton(repository, arguments=["--exit-on-error=false", "--strict-readiness=false"])  # fmt: skip
    ended = audit(server, seconds=3)
    told = ended.finding("model-not-ready")
    assert told.model == "broken"
    assert "weights are missing" in str(told.evidence[0].value)
    assert "readiness-not-strict" in ended.ids()


@pytest.mark.triton
def test_settings_of_the_server_that_do_harm_are_told(start_triton, tmp_path, audit):
    server = start_triton(
        MODELS,
        arguments=[
            "--trace-config=level=TIMESTAMPS",
            "--trace-config=rate=5",
            f"--trace-config=triton,file={tmp_path / 'trace'}",
            "--metrics-config=summary_latencies=true",
            "--metrics-config=counter_latencies=false",
        ],
    )
    with production(server):
        ended = audit(server, seconds=3)
    assert ended.finding("trace-buffer-unbounded", "double").severity == "critical"
    assert ended.finding("version-tracing-crash").severity == "warning"
    assert ended.finding("summaries-on").reference == "server#8561"
    assert ended.finding("counters-frozen-at-zero", "double").reference == "server#8125"
    assert "tracing-off" not in ended.ids()
    client = HttpClient(server.http)
    client.post("/v2/trace/setting", b'{"log_frequency": "100"}', timeout_seconds=5)
    client.close()
    assert "trace-buffer-unbounded" not in audit(server, seconds=3).ids()


# The command.


def test_it_ends_with_0_if_nothing_is_at_warning_or_above(audit):
    with FakeTriton([FakeModel("m")], version=FIXED) as fake:
        # Longer than what a busy machine adds outside of the server.
        fake.on("infer").reply(Slow(0.05))
        ended = audit(fake, seconds=2, form="text")
    assert ended.code == 0, ended.out
    assert ended.out.startswith("tritonwatch audit of")
    assert ended.err.splitlines()[0].startswith("audit: reading")


def test_a_server_that_is_away_is_a_finding_and_not_a_crash(audit):
    with FakeTriton() as fake, fake.down():
        ended = audit(fake, seconds=2)
    assert ended.code == 1
    assert ended.ids() == {"server-unreachable"}


def test_a_report_goes_to_stdout_whole_and_progress_to_stderr(audit):
    with FakeTriton([FakeModel("m")], version=FIXED) as fake:
        fake.on("infer").reply(Slow(0.05))
        ended = audit(fake, seconds=1, form="html")
    assert ended.code == 0
    assert "audit: reading" in ended.err
    assert ended.out.startswith("<!doctype html>")
    assert ended.out.endswith("</html>\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--duration", "nan"),
        ("--config", "/nowhere/tritonwatch.yaml"),
    ],
)
def test_wrong_usage_ends_with_2_before_anything_is_asked(arguments):
    ended = _run(*arguments)
    assert ended.code == 2, ended.err
    assert ended.out == ""
    assert "audit: reading" not in ended.err
    assert "Traceback" not in ended.err
