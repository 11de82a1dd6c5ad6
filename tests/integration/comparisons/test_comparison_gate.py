"""`tritonwatch compare --gate`, for a pipeline."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess

import pytest
from compared_versions import COMMAND, HELD_OUT

from exporter.testing.faults import Fault, set_fault


@pytest.fixture
def gate(server, tmp_path):
    """Run `tritonwatch compare --gate`; the finished process."""
    file = tmp_path / "triton.json.yaml"
    target = {"grpc": server.grpc, "http": server.http, "metrics": server.metrics}
    file.write_text(json.dumps({"target": target, "power": None}), "utf-8")

    def run(*arguments, challenger="digits:2"):
        return subprocess.run(
            [
                *(COMMAND, "compare", "--gate", "--config", file),
                *("--champion", "digits:1", "--challenger", challenger, *arguments),
            ],
            capture_output=True,
            text=True,
            timeout=55,
            check=False,
        )

    return run


def test_the_gate_lets_an_equal_challenger_pass(gate):
    done = gate(
        *("--data", str(HELD_OUT), "--metric", "agreement", "--metric", "success"),
        *("--margin", "agreement=0.2", "--margin", "success=0.2", "--json"),
        *("--rate", "300", "--duration", "40"),
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["outcome"] == "passed"
    assert {m["verdict"] for m in report["metrics"]} == {"equivalent"}
    assert report["inputs_sha256"] == hashlib.sha256(HELD_OUT.read_bytes()).hexdigest()
    assert report["versions"]["triton"] == "2.51.0"
    assert report["model_versions"] == ["1", "2"]


def test_the_gate_stops_a_challenger_that_lies(gate, repository):
    set_fault(repository, "digits", Fault("zeros"), version="2")
    done = gate("--data", str(HELD_OUT), "--rate", "300", "--duration", "40")
    assert done.returncode == 1, done.stderr
    assert re.search(r"^accuracy .* worse$", done.stdout, re.MULTILINE)
    assert "digits:2 against digits:1: failed" in done.stdout


@pytest.mark.slow
def test_the_gate_says_when_it_is_not_decided_and_when_it_cannot_be(gate):
    undecided = gate("--metric", "latency_p99", "--duration", "2")
    assert undecided.returncode == 3, undecided.stderr
    assert "undecided" in undecided.stdout
    for arguments, problem in (
        (("--margin", "speed=1"), "margins.speed: Extra inputs are not permitted"),
        (("--data", "/nowhere.npz"), "/nowhere.npz: cannot be read"),
        (("--metric", "accuracy"), "no labels"),
    ):
        refused = gate(*arguments)
        assert refused.returncode == 2, refused.stderr
        assert problem in refused.stderr
    gone = gate(challenger="no_such")
    assert gone.returncode == 2
    assert "no_such is not among the server's ready models" in gone.stderr
