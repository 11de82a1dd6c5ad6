"""`compare` tells the energy of both from the sidecar that watches a real Triton."""

from __future__ import annotations

import json

import pytest
import yaml
from commands import tritonwatch

# Fifty looks, one every two seconds, come before an interval.
pytestmark = [pytest.mark.triton, pytest.mark.slow]


def test_joules_of_both_come_from_the_page_of_a_sidecar(
    triton, settings, start_sidecar, tmp_path
) -> None:
    # By busy time: where tests beside this one use all CPUs, power by CPU time is the same
    # with the models as without, and their watts cannot be told.
    modelled = {"kind": "model", "idle_watts": 20, "full_watts": 60, "use": "busy"}
    config = settings(triton, power={"sources": [modelled], "window_seconds": 1})
    config["probes"] = []
    sidecar = start_sidecar(config)
    target = tmp_path / "target.yaml"
    target.write_text(yaml.safe_dump({"target": config["target"]}), "utf-8")
    done = tritonwatch(
        *("compare", "--config", target, "--preset", "precision"),
        *("--metric", "success", "--margin", "success=0.5", "--rate", "40"),
        *("--metrics", f"http://127.0.0.1:{sidecar.port}/metrics"),
        *("--duration", "170", "--json"),
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["not_measured"] == [], report["why_not_measured"]
    (energy,) = (m for m in report["metrics"] if m["metric"] == "energy")
    assert energy["pairs"] >= 50
    assert -1 <= energy["low"] < energy["estimate"]
