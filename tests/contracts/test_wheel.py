"""The wheel holds the four packages and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_holds_exactly_the_three_packages(tmp_path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT,
        capture_output=True,
        timeout=50,
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = [n for n in names if n.endswith("entry_points.txt")]
        commands = archive.read(entry_points).decode()
    top = {name.partition("/")[0] for name in names}
    info = {name for name in top if name.endswith(".dist-info")}
    assert top - info == {"exporter", "drift", "loadtests", "pages"}
    assert len(info) == 1
    assert "tritonwatch = exporter.cli:main" in commands
    for package in ("exporter", "drift", "loadtests", "pages"):
        assert f"{package}/py.typed" in names
    assert "exporter/config.schema.json" in names
    assert not [n for n in names if "__pycache__" in n or "/tests/" in n]
