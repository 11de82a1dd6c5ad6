"""What .ci/tests --again calls green: every test passed, at the first go or at the second."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
_ONCE: Final = """
import os, pathlib, pytest
def first(name):
    path = pathlib.Path(name)
    before = path.exists()
    path.touch()
    return not before
"""
FAILS_ONCE: Final = "def test_it(): assert not first('a')\n"
FAILS: Final = "def test_it(): assert 0\n"
IS_SKIPPED_THEN: Final = """
def test_it():
    if not first('a'): pytest.skip('not here')
    assert 0
"""
ENDS_IN_THE_MIDDLE: Final = """
def test_it(): pass
def test_its_end(): os._exit(1)
"""
FAILS_ONCE_THEN_FAILS: Final = FAILS_ONCE + "def test_later(): assert 0\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "tests", tmp_path / ".ci" / "tests")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (tmp_path / "tests" / "integration").mkdir(parents=True)
    return tmp_path


def ended(checkout: Path, tests: str, *arguments: str) -> int:
    (checkout / "tests" / "integration" / "test_it.py").write_text(_ONCE + tests)
    return subprocess.run(
        [sys.executable, ".ci/tests", "--again", "--rootdir=.", *arguments],
        cwd=checkout,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
        capture_output=True,
        timeout=60,
    ).returncode


@pytest.mark.parametrize(
    ("tests", "arguments", "green"),
    [
        (FAILS_ONCE, (), True),
        (IS_SKIPPED_THEN, (), False),
        (FAILS_ONCE_THEN_FAILS, ("-x",), False),
    ],
)
def test_what_failed_has_to_pass(
    checkout: Path, tests: str, arguments: tuple[str, ...], *, green: bool
) -> None:
    assert (ended(checkout, tests, *arguments) == 0) is green


def test_a_run_that_ends_in_the_middle_has_no_second_chance(checkout: Path) -> None:
    # An earlier run remembers a failure that is none any more.
    assert ended(checkout, FAILS) != 0
    (checkout / "a").touch()
    assert ended(checkout, ENDS_IN_THE_MIDDLE) != 0
