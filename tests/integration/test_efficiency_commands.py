"""The commands `load efficiency` and `load pair` on the real Triton."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from commands import tritonwatch
from waiting import patience

pytestmark = [pytest.mark.triton, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "deploy" / "models"


def run(triton, *arguments):
    done = tritonwatch(
        "load",
        *arguments,
        *(f"--address={triton.grpc}", "--idle-watts=20", "--full-watts=60"),
        timeout=patience(280),
    )
    # 3 says that a busy machine spoils the numbers; they are made all the same.
    assert done.returncode in {0, 3}, done.stderr
    return done.stdout


def read(kind, file):
    """The report, which its published schema describes."""
    report = json.loads(file.read_text())
    published = ROOT / "loadtests" / "report" / f"{kind}.schema.json"
    jsonschema.validate(report, json.loads(published.read_text()))
    return report


def test_the_curve_has_eleven_levels_and_its_source(triton, tmp_path):
    json_file, page = tmp_path / "curve.json", tmp_path / "curve.html"
    told = run(
        triton,
        "efficiency",
        "--model=digits_fp32",
        "--level-seconds=2",
        "--maximum=60",
        f"--json={json_file}",
        f"--html={page}",
    )
    report = read("efficiency", json_file)
    assert [level["name"] for level in report["levels"]] == [
        *(f"{percent} %" for percent in range(100, 0, -10)),
        "idle",
    ]
    rates = [level["inferences_per_second"] for level in report["levels"]]
    assert rates[-1] < rates[0]
    assert report["sources"]["host"] in {"model", "rapl"}
    assert all(
        power["watts"] > 0 for level in report["levels"] for power in level["power"]
    )
    assert report["score"]["host"] > 0
    assert "overall score" in told
    assert "<svg" in page.read_text()


def test_a_pair_tells_speed_energy_and_accuracy_with_intervals(triton, tmp_path):
    json_file = tmp_path / "pair.json"
    run(
        triton,
        "pair",
        "--model=digits_fp32",
        "--model=digits_int8",
        "--pairs=5",
        "--block-seconds=1",
        f"--labelled={MODELS / 'digits_fp32' / 'data' / 'held_out.npz'}",
        f"--json={json_file}",
    )
    report = read("pair", json_file)
    right = pytest.approx(436 / 449)  # as deploy/models/README.md has it
    assert report["accuracy"] == {"digits_fp32": right, "digits_int8": right}
    change = report["accuracy_change"]
    assert change["low"] < change["estimate"] < change["high"]
    for interval in (report["speed_up"], *report["energy_ratio"].values()):
        assert 0 < interval["low"] <= interval["estimate"] <= interval["high"]
