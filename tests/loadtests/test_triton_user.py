"""Locust's own users, tasks and pauses in front of a real Triton."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient

pytestmark = pytest.mark.triton

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "loadtests" / "example_locustfile.py"
USERS, SECONDS, SHORTEST_PAUSE = 4, 10, 0.1
MISFITS = """
from locust import constant, task
from loadtests.triton_user import TritonUser

class Misfit(TritonUser):
    wait_time = constant(0.2)

    @task
    def too_short(self):
        assert self.client.infer("digits_fp32", {"pixels": [[1.0]]}) is None
"""
CHATTER = """
from locust import constant, task
from loadtests.triton_user import TritonUser

class Chatter(TritonUser):
    wait_time = constant(0.1)

    @task
    def chat(self):
        given = {"text_input": ["Tell me a story"], "stream": [True]}
        answer = self.client.infer("llm", given)
        words = answer["text_output"][0].split()
        assert len(words) >= answer["num_output_tokens"].size > 1
"""


@pytest.fixture(scope="module")
def digits(triton_environment, tmp_path_factory):
    models = tmp_path_factory.mktemp("digits") / "models"
    for name in ("digits_fp32", "digits_int8", "llm"):
        shutil.copytree(ROOT / "deploy" / "models" / name, models / name)
    with EmbeddedTriton(models, environment=triton_environment) as server:
        yield server


def locust(file: Path, server, folder: Path, users: int, seconds: int):
    """The ended Locust, and its rows by name."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "locust", "-f", str(file), "--headless"),
            *("-u", str(users), "-r", str(users), "-t", f"{seconds}s"),
            *("--host", f"http://{server.http}", "--json"),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    rows = json.loads(done.stdout)
    return done, {
        row["name"] if row["method"] == "infer" else row["method"]: row for row in rows
    }


def served(server, model: str) -> int:
    client = GrpcClient(server.grpc)
    try:
        [counts] = client.statistics(model, timeout_seconds=10)
        return counts.success.count
    finally:
        client.close()


def test_the_example_honours_weights_and_pauses(digits, tmp_path) -> None:
    before = {name: served(digits, name) for name in ("digits_fp32", "digits_int8")}
    done, rows = locust(EXAMPLE, digits, tmp_path, USERS, SECONDS)
    assert done.returncode == 0, done.stderr
    drawn, own = (rows[name]["num_requests"] for name in ("digits_fp32", "empty image"))
    # Three to one; within five standard deviations of fifty or more draws.
    assert 0.45 < drawn / (drawn + own) < 0.98
    assert USERS < drawn + own <= USERS * (SECONDS / SHORTEST_PAUSE + 1)
    assert {row["num_failures"] for row in rows.values()} == {0}
    # What Locust counted is what the server answered, but for requests of the last moment.
    answered = served(digits, "digits_fp32") - before["digits_fp32"]
    assert drawn <= answered <= drawn + USERS
    assert rows["digits_fp32"]["total_content_length"] == drawn * 10 * 4


def test_a_refused_request_is_a_failure_and_gives_nothing(digits, tmp_path) -> None:
    file = tmp_path / "misfits.py"
    file.write_text(MISFITS, "utf-8")
    done, rows = locust(file, digits, tmp_path, 1, 8)
    assert done.returncode == 1, done.stderr
    counts = rows["digits_fp32"]
    assert counts["num_failures"] == counts["num_requests"] > 0


def test_a_streamed_answer_is_joined_and_its_first_response_timed(
    digits, tmp_path
) -> None:
    file = tmp_path / "chatter.py"
    file.write_text(CHATTER, "utf-8")
    done, rows = locust(file, digits, tmp_path, 2, 5)
    assert done.returncode == 0, done.stderr
    whole, first = rows["llm"], rows["first response"]
    assert whole["num_requests"] == first["num_requests"] > 3
    assert whole["total_content_length"] > 0
    mean, mean_first = (
        row["total_response_time"] / row["num_requests"] for row in (whole, first)
    )
    assert 0 < mean_first < mean
