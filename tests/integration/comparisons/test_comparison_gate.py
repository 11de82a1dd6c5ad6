"""`tritonwatch compare --gate`, for a pipeline."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess

import numpy as np
import pytest
import urllib3
from commands import COMMAND, tritonwatch
from compared_versions import HELD_OUT, Load
from small_models import config, write_model
from waiting import patience

from exporter.commands.comparison_command import decidable
from exporter.features.comparison.comparison_settings import ComparisonSettings
from exporter.triton.faulty_model import Fault, set_fault


def compare_arguments(server, folder):
    """The arguments of `tritonwatch compare --gate` for this server."""
    file = folder / "triton.json.yaml"
    target = {"grpc": server.grpc, "http": server.http, "metrics": server.metrics}
    file.write_text(json.dumps({"target": target, "power": None}), "utf-8")
    return ("compare", "--gate", "--config", str(file))


@pytest.fixture
def gate(server, tmp_path):
    """Run it; the finished process."""
    arguments = compare_arguments(server, tmp_path)

    def run(*more, challenger="digits:2"):
        pair = ("--champion", "digits:1", "--challenger", challenger)
        return tritonwatch(*arguments, *pair, *more)

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


def test_a_model_that_is_gone_for_a_while_costs_time_and_no_pair(
    start_triton, tmp_path
):
    for name in ("old", "new"):
        write_model(tmp_path / "models", name, config())
    server = start_triton(
        tmp_path / "models",
        model_control="explicit",
        arguments=["--load-model=old", "--load-model=new"],
    )
    model = f"http://{server.http}/v2/repository/models/new"
    stopped = "undecided so far; waiting: new is not among the server's ready models"
    with subprocess.Popen(
        [
            *(COMMAND, *compare_arguments(server, tmp_path)),
            *("--champion", "old", "--challenger", "new", "--rate", "20"),
            *("--metric", "agreement", "--margin", "agreement=0.2"),
            *("--duration", str(patience(60))),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        said = []
        for line in process.stderr:
            said.append(line)
            if re.match(r"compare: [1-9]\d* pairs, undecided so far$", line):
                urllib3.request("POST", f"{model}/unload", timeout=patience(60))
                break
        # Longer than a comparison may take to begin.
        while len(said) < 20 and (line := process.stderr.readline()):
            said.append(line)
        urllib3.request("POST", f"{model}/load", timeout=patience(60))
        verdict, rest = process.communicate(timeout=patience(120))
    assert stopped in said[-1], said
    assert process.returncode == 0, verdict + rest
    assert "stopped" not in verdict


def test_a_metric_that_nothing_measures_here_passes_no_gate(gate):
    done = gate("--metric", "energy", "--duration", "3")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "undecided" in done.stdout
    assert "not measured here" in done.stdout


@pytest.mark.parametrize("labels", [{}, {"label": [0, 1]}], ids=["none", "labels"])
def test_a_comparison_without_metrics_waits_for_no_accuracy_that_cannot_come(
    tmp_path, labels
):
    file = tmp_path / "rows.npz"
    np.savez(file, x=np.ones((2, 3)), **labels)
    entry = {"name": "x", "champion": "a", "challenger": "b"}
    bare = decidable(ComparisonSettings.model_validate(entry))
    rows = decidable(
        ComparisonSettings.model_validate({**entry, "inputs": {"file": file}})
    )
    assert "accuracy" not in bare.metrics
    assert ("accuracy" in rows.metrics) == bool(labels)
    assert {"agreement", "success", "latency_mean"} <= {*bare.metrics, *rows.metrics}


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
