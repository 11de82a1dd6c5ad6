"""Cold starts on a real Triton: seen from outside, and measured by loading."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest
from commands import COMMAND, tritonwatch
from waiting import patience, wait_until

LOAD, FIRST = "triton_model_load_seconds", "triton_model_first_inference_seconds"
COLD = "triton_model_cold_inference_seconds"


@pytest.fixture
def watched(playground, settings, start_sidecar):
    config = settings(playground, probes=[], power=None)
    config["collectors"].append({"kind": "cold_start", "interval_seconds": 0.06})
    sidecar = start_sidecar(config)
    sidecar.wait(lambda p: p.value("triton_model_ready", model="double") == 1)
    return sidecar


def test_a_model_that_goes_and_comes_back_is_timed_until_it_answers(
    playground, watched
):
    name = {"model": "double"}
    assert watched.page().value(LOAD, **name) is None
    playground.model("double", "unload")
    watched.wait(lambda p: p.value("triton_model_ready", **name) != 1)
    playground.model("double", "load")
    page = watched.wait(lambda p: p.value(FIRST, **name) is not None, 20)
    load, first, cold = (page.value(m, **name) for m in (LOAD, FIRST, COLD))
    # A stub process is started, which takes longer than any look or inference.
    assert 0 < cold < first
    assert load <= first
    # Our own first inference is nobody's production.
    assert page.sum("triton_requests_total", **name) == 0
    assert page.all(LOAD, model="sleepy") == []


def test_a_server_that_comes_back_is_asked_by_every_model(playground, watched):
    playground.triton.restart()
    for name in ("double", "sleepy"):
        page = watched.wait(lambda p, n=name: p.value(COLD, model=n) is not None, 30)
        # When the load began nobody saw.
        assert page.value(LOAD, model=name) is None


def config_of(server, tmp_path):
    file = tmp_path / "triton.yaml"
    target = {"grpc": server.grpc, "http": server.http}
    file.write_text(json.dumps({"target": target, "power": None}), "utf-8")
    return file


def command(*arguments, playground, tmp_path):
    file = config_of(playground, tmp_path)
    return tritonwatch("coldstart", "--config", file, *arguments)


def test_loading_again_and_again_tells_times_and_memory(playground, tmp_path):
    done = command(
        *("--model", "double", "--repeat", "2", "--json"),
        *("--pid", str(playground.triton.pid)),
        playground=playground,
        tmp_path=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    times = report["seconds"]
    assert times["load"]["n"] == 2
    # Two are too few for an interval.
    assert times["load"]["low"] is None
    assert times["first_inference"]["value"] > times["load"]["value"]
    assert all(
        each["load"] + each["cold_inference"] <= each["first_inference"]
        for each in report["each"]
    )
    # The model's own process is the difference.
    memory = report["memory_bytes"]["server"]
    assert memory["loaded"] > memory["unloaded"] + (1 << 20)
    assert report["memory_bytes"]["model"] is None
    assert playground.states()["double"] == "READY"


def test_what_cannot_be_loaded_is_said_in_a_sentence(playground, triton, tmp_path):
    unknown = command("--model", "nope", playground=playground, tmp_path=tmp_path)
    assert unknown.returncode == 1
    assert "found no model 'nope'; the server has ['doomed', 'double'" in unknown.stderr
    refused = command("--model", "slow", playground=triton, tmp_path=tmp_path)
    assert refused.returncode == 1
    assert "--model-control-mode=explicit" in refused.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_model_loaded(playground, tmp_path, number):
    arguments = ["coldstart", "--config", config_of(playground, tmp_path)]
    wanted = ["--model", "double", "--repeat", "1000"]
    with subprocess.Popen([COMMAND, *arguments, *wanted]) as process:
        try:
            wait_until(lambda: playground.states().get("double") != "READY", "unloaded")
            process.send_signal(number)
            assert process.wait(patience()) == 128 + number
        finally:
            process.kill()
    assert playground.states()["double"] == "READY"
