"""Locust as master, workers and UI over senders of our own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from fake_triton import EmptyTensor, FakeModel, FakeTriton, Slow
from monitoring import free_port
from waiting import patience

from loadtests import result_file
from loadtests.result import Outcome, quantile_of

ROOT = Path(__file__).parents[2]
# Locust warns of things that are its own affair.
ENVIRONMENT = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}


def locust(*arguments: str, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "locust", "-f", "loadtests/locustfile.py"),
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT,
        start_new_session=True,
        **options,
    )


@contextlib.contextmanager
def ending(*children: subprocess.Popen[str]):
    try:
        yield
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            child.stdout.close()


def asked(port: int) -> dict:
    url = f"http://127.0.0.1:{port}/stats/requests"
    with urllib.request.urlopen(url, timeout=patience(5)) as answer:
        return json.loads(answer.read())


def arrivals_in(output: str) -> int:
    found = re.search(r"failed +\S+ % of (\d+)", output)
    assert found, output
    return int(found[1])


@pytest.mark.slow
def test_an_open_loop_is_in_the_ui_and_in_the_result(loaded, tmp_path) -> None:
    port, file = free_port(), tmp_path / "result.json"
    child = locust(
        *("--host", f"grpc://{loaded.grpc}", "--model", "double"),
        *("--load-profile", "poisson", "--rate", "50", "--duration", "3"),
        *("--web-host", "127.0.0.1", "--web-port", str(port)),
        *("--autostart", "--autoquit", "4", "--result", str(file)),
    )
    shown: list[dict] = []
    with ending(child):
        while child.poll() is None:
            with contextlib.suppress(OSError):
                shown.append(asked(port))
            time.sleep(0.3)
        output = child.stdout.read()
    result = result_file.read(file)
    count = result.requests.count(Outcome.OK)
    assert count == arrivals_in(output) > 100, output
    totals = [e for page in shown for e in page["stats"] if e["name"] == "Aggregated"]
    total = max(totals, key=lambda entry: entry["num_requests"])
    assert total["num_requests"] == count, output
    assert total["num_failures"] == 0
    middle = quantile_of(result.requests.waits, 0.5)
    assert total["median_response_time"] == pytest.approx(middle * 1e3, abs=1.0)


def test_two_workers_send_one_schedule_and_have_one_result(tmp_path) -> None:
    with FakeTriton([FakeModel("m")]) as fake:
        result, port = tmp_path / "result.json", str(free_port())
        child = locust(
            *("--headless", "--processes", "2", "--host", f"http://{fake.http}"),
            *("--model", "m", "--load-profile", "constant", "--rate", "40"),
            *("--duration", "3", "--result", str(result), "--only-summary"),
            *("--master-port", port, "--master-bind-port", port),
        )
        with ending(child):
            output, _ = child.communicate(timeout=patience(120))
        # Each worker tried one request out before.
        assert fake.received("infer") == 120 + 2, output
    found = result_file.read(result)
    assert found.requests.count(Outcome.OK) == len(found.requests) == 120, output
    assert np.allclose(found.requests.intended, np.arange(120) / 40)
    assert found.about.workers == 2
    assert found.verdict.valid, found.verdict
    assert child.returncode == 0


def test_a_result_that_cannot_be_written_is_refused_before_the_run() -> None:
    child = locust("--headless", "--model", "m", "--result", "/nowhere/result.json")
    with ending(child):
        out, _ = child.communicate(timeout=patience(30))
    assert child.returncode == 2
    assert "no such folder: /nowhere" in out


@pytest.mark.slow
def test_wrong_answers_are_failures_in_locusts_table() -> None:
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer").reply(times=1)
        fake.on("infer").reply(EmptyTensor())
        child = locust(
            *("--headless", "--host", f"grpc://{fake.grpc}", "--model", "m"),
            *("--load-profile", "constant", "--rate", "20", "--duration", "1"),
        )
        with ending(child):
            output, _ = child.communicate(timeout=patience(100))
    assert re.search(r"20\(100\.00%\)", output), output
    assert "wrong: not an answer of this model" in output
    assert child.returncode != 0


@pytest.mark.slow
def test_a_worker_that_is_killed_is_told_and_the_others_count(tmp_path) -> None:
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer").reply(Slow(0.001, phase="network"))
        port, result = str(free_port()), tmp_path / "result.json"
        master = locust(
            *("--headless", "--master", "--expect-workers", "2", "--model", "m"),
            *("--master-bind-port", port, "--host", f"http://{fake.http}"),
            *("--load-profile", "constant", "--rate", "40", "--duration", "20"),
            *("--result", str(result), "--only-summary"),
        )
        workers = [locust("--worker", "--master-port", port) for _ in range(2)]
        with ending(master, *workers):
            fake.wait_for("infer", count=200, timeout_seconds=90)
            os.killpg(workers[0].pid, signal.SIGKILL)
            output, _ = master.communicate(timeout=patience(120))
    assert master.returncode == 3, output
    answered = result_file.read(result).requests.count(Outcome.OK)
    lost = re.search(r"INVALID: worker \S+ was lost after (\d+)", output)
    assert lost, output
    # Half of 800 went to the other one, and half of the first 200 to this one.
    assert answered - int(lost[1]) > 300
    assert 30 < int(lost[1]) < 400


@pytest.mark.slow
def test_without_a_profile_locusts_users_are_the_concurrency(loaded) -> None:
    child = locust(
        *("--headless", "--host", f"grpc://{loaded.grpc}", "--model", "double"),
        *("-u", "4", "-r", "4", "-t", "15s", "--only-summary"),
    )
    with ending(child):
        output, _ = child.communicate(timeout=patience(100))
    assert child.returncode == 0, output
    assert arrivals_in(output) > 100
    assert "closed over grpc" in output
