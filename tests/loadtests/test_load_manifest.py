"""What is shipped to run load elsewhere: the cluster manifest and the scenarios."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from waiting import patience

from loadtests import scenario

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "deploy" / "kubernetes" / "locust" / "locust.yaml"


@pytest.fixture(scope="module")
def documents() -> dict[tuple[str, str], dict]:
    found = yaml.safe_load_all(MANIFEST.read_text("utf-8"))
    return {(d["kind"], d["metadata"]["name"]): d for d in found}


def container(deployment: dict) -> dict:
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return found


def test_selectors_labels_and_ports_agree(documents) -> None:
    master = documents["Deployment", "locust-master"]
    service = documents["Service", "locust"]
    labels = master["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    for name in ("locust-master", "locust-worker"):
        spec = documents["Deployment", name]["spec"]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    ports = {port["name"] for port in container(master)["ports"]}
    assert {p["targetPort"] for p in service["spec"]["ports"]} == ports


def test_the_workers_are_as_many_as_the_master_waits_for(documents) -> None:
    master = container(documents["Deployment", "locust-master"])
    workers = documents["Deployment", "locust-worker"]
    assert f"--expect-workers={workers['spec']['replicas']}" in master["args"]
    service = documents["Service", "locust"]["metadata"]["name"]
    assert f"--master-host={service}" in container(workers)["args"]


@pytest.mark.parametrize("name", ["locust-master", "locust-worker"])
def test_locust_takes_the_arguments(documents, name) -> None:
    """By Locust's own parser: an option it does not know ends it with 2."""
    args = container(documents["Deployment", name])["args"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "locust", "-f", "loadtests/locustfile.py"),
            *args,
            "--list",
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        timeout=patience(50),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "TritonUser" in done.stdout


@pytest.mark.parametrize(
    "file",
    sorted((ROOT / "loadtests" / "scenarios").glob("*.yaml")),
    ids=lambda f: f.name,
)
def test_every_scenario_that_is_shipped_is_one(file) -> None:
    assert scenario.parse(scenario.read(file, {}), str(file)).models
