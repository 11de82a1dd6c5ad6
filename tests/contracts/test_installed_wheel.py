"""What users install is the wheel: every command and a real `serve` work from it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from fake_triton import FakeModel, FakeTriton
from sidecars import SidecarProcess

ROOT = Path(__file__).parents[2]
START = "import sys; from exporter.cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        capture_output=True,
        timeout=120,
        check=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel):
    """The wheel in a folder of its own, which comes before this checkout."""
    site = wheel.parent / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*pip, site, wheel], timeout=120, check=True)
    return site


@pytest.fixture
def run(installed, tmp_path):
    """Run the installed command in an empty folder; checks where it came from."""

    def running(*arguments: str, code: str = START) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return running


def test_every_command_says_what_it_takes(run, installed) -> None:
    where = run(code="import exporter; print(exporter.__file__)")
    assert where.stdout.startswith(str(installed))
    shown = run("--help")
    commands = re.findall(r"^    ([a-z-]+) ", shown.stdout, re.MULTILINE)
    assert {"serve", "check", "demo", "load", "chaos", "drift"} <= set(commands)
    for command in commands:
        asked = run(command, "--help")
        assert asked.returncode == 0, asked.stderr
        assert asked.stdout.startswith(f"usage: tritonwatch {command}")


def test_it_serves_metrics_and_the_status_page(installed, tmp_path) -> None:
    with FakeTriton([FakeModel("m")]) as fake:
        config = {
            "target": {"grpc": fake.grpc, "http": fake.http},
            "listen": {"address": "127.0.0.1", "port": 0},
        }
        from_wheel = ("env", f"PYTHONPATH={installed}")
        sidecar = SidecarProcess(config, tmp_path, within=from_wheel)
        try:
            sidecar.wait_listening()
            sidecar.wait(
                lambda page: page.value("triton_model_serving", model="m") == 1
            )
            assert b"uPlot" in sidecar.get("/").body
            runbook = sidecar.get("/runbooks/TritonDown")
            assert runbook.body.startswith(b"# TritonDown")
        finally:
            sidecar.close()


def test_the_wheel_holds_the_four_packages_and_nothing_else(wheel) -> None:
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
