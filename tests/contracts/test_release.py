"""`.ci/release` makes a whole release of what is committed, or says why it cannot."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import helm_python
import pytest

ROOT = Path(__file__).parents[2]
VERSION = version("tritonwatch")


@pytest.fixture
def clone(tmp_path):
    """A copy of what is tracked, committed anew."""
    copy = tmp_path / "clone"
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in tracked.stdout.decode().split("\0"):
        if name and not name.startswith("tests/") and (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "all"]):
        subprocess.run(["git", *command], cwd=copy, check=True)
    return copy


def release(clone: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [clone / ".ci" / "release", sys.executable, folder],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_release_is_whole_and_the_same_each_time(clone, tmp_path) -> None:
    done = [release(clone, tmp_path / name) for name in ("first", "second")]
    assert [one.returncode for one in done] == [0, 0], done[0].stderr
    folder = tmp_path / "first"
    sums = (folder / "SHA256SUMS").read_text("utf-8")
    assert sums == (tmp_path / "second" / "SHA256SUMS").read_text("utf-8")
    found = dict(reversed(line.split()) for line in sums.splitlines())
    assert set(found) == {
        f"tritonwatch-{VERSION}-py3-none-any.whl",
        f"tritonwatch-{VERSION}.tar.gz",
        f"tritonwatch-chart-{VERSION}.tgz",
        f"tritonwatch-image-{VERSION}.tar.gz",
    }
    for name, digest in found.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    chart = folder / f"tritonwatch-chart-{VERSION}.tgz"
    assert not helm_python.lint(str(chart), {}, strict=True)["errors"]
    with helm_python.Chart.load(str(chart)) as packed:
        pages = packed.render(
            {"dashboards": {"enabled": True}}, name="a", namespace="b"
        )
    assert any('"uid": "tritonwatch-fleet"' in page for page in pages.values())
    with tarfile.open(folder / f"tritonwatch-image-{VERSION}.tar.gz") as context:
        names = {name.partition("/")[2] for name in context.getnames()}
    copied = [
        line.split()[1]
        for line in (ROOT / "deploy/docker/Dockerfile").read_text("utf-8").splitlines()
        if line.startswith("COPY ") and "--from" not in line
    ]
    assert set(copied) <= names
    with tarfile.open(folder / f"tritonwatch-{VERSION}.tar.gz") as source:
        assert not [name for name in source.getnames() if "/tests/" in name]


def test_uncommitted_changes_are_no_release(clone, tmp_path) -> None:
    (clone / "README.md").write_text("other", "utf-8")
    done = release(clone, tmp_path / "out")
    assert done.returncode == 2
    assert "uncommitted changes" in done.stderr


def test_a_chart_of_another_version_is_no_release(clone, tmp_path) -> None:
    chart = clone / "deploy/helm/tritonwatch/Chart.yaml"
    chart.write_text(chart.read_text("utf-8").replace(VERSION, "9.9.9"), "utf-8")
    done = release(clone, tmp_path / "out")
    assert done.returncode == 2
    assert "is not" in done.stderr
