"""The build context of the image: what the ignore file leaves is enough to build it."""

from __future__ import annotations

import fnmatch
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy" / "docker"


def copied() -> list[str]:
    """The sources of the image's COPY instructions, as far as they are of the context."""
    lines = (DOCKER / "Dockerfile").read_text("utf-8").splitlines()
    words = [w.split()[1:-1] for w in lines if w.startswith("COPY ")]
    return [name for found in words for name in found if "--from" not in found[0]]


def is_sent(path: str) -> bool:
    """Return True if Docker sends a file; the last pattern that matches it or its folder decides."""
    sent = True
    for line in (DOCKER / "Dockerfile.dockerignore").read_text("utf-8").splitlines():
        pattern = line.removeprefix("!")
        parents = [path, *map(str, PurePosixPath(path).parents)]
        if any(fits(parent, pattern) for parent in parents if parent != "."):
            sent = line.startswith("!")
    return sent


def fits(path: str, pattern: str) -> bool:
    """Return True if a pattern matches the whole path; a star does not cross folders."""
    names, wanted = path.split("/"), pattern.split("/")
    if wanted[0] == "**":
        names, wanted = names[1 - len(wanted) :], wanted[1:]
    return len(names) == len(wanted) and all(map(fnmatch.fnmatchcase, names, wanted))


def files_of(source: str) -> list[str]:
    """The tracked files that a COPY of `source` is about."""
    command = ["git", "ls-files", "-z", "--", source]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return [name for name in done.stdout.decode().split("\0") if name]


def test_the_context_has_all_that_the_image_copies() -> None:
    for source in copied():
        found = files_of(source)
        assert found, source
        assert [name for name in found if not is_sent(name)] == [], source
    assert not is_sent("exporter/web/__pycache__/page.cpython-312.pyc")
    assert not is_sent("tests/conftest.py")


def test_the_package_is_built_from_what_the_image_copies(tmp_path) -> None:
    for name in (name for source in copied() for name in files_of(source)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
