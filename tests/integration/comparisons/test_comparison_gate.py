"""`tritonwatch compare --gate`, for a pipeline."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from commands import tritonwatch
from compared_versions import HELD_OUT, Load

from exporter.triton.faulty_model import Fault, set_fault


@pytest.fixture
def gate(server, tmp_path):
    """Run `tritonwatch compare --gate`; the finished process."""
    file = tmp_path / "triton.json.yaml"
    target = {"grpc": server.grpc, "http": server.http, "metrics": server.metrics}
    file.write_text(json.dumps({"target": target, "power": None}), "utf-8")

    def run(*arguments, challenger="digits:2"):
        return tritonwatch(
            *("compare", "--gate", "--config", file),
            *("--champion", "digits:1", "--challenger", challenger, *arguments),
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


def test_the_command_says_which_budget_holds_it_back_and_can_lift_it(
    gate, server, pixels
):
    """Production asks; a millionth of it earns no pair, and without a limit all come."""
    metric = ("--metric", "agreement", "--margin", "agreement=0.2")
    with Load(server.grpc, pixels):
        held = gate(*metric, "--budget", "0.000001", "--duration", "15")
        free = gate(*metric, "--budget", "none", "--duration", "40")
    assert held.returncode == 3, held.stderr
    last = held.stderr.strip().splitlines()[-1]
    said = (
        r"0 pairs, undecided so far; delayed by 1e-06 of the champion's production "
        r"(requests|busy time) \(--budget\); next pair in \d+\.\d s"
    )
    assert re.search(said, last), held.stderr
    assert re.search(r"undecided after 0 pairs .*; delayed by 1e-06 of", held.stdout)
    assert free.returncode == 0, free.stdout + free.stderr
    assert "delayed" not in free.stdout


@pytest.mark.parametrize("share", ["0", "nan"])
def test_a_budget_that_is_no_share_is_refused(gate, share):
    refused = gate("--budget", share)
    assert refused.returncode == 2
    assert f"found {share!r}; want a share above 0 and up to 1" in refused.stderr


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
