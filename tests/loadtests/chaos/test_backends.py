"""What of a dead server is cleared away, and never anything else."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from loadtests.chaos.primitives.backends import SHARED_MEMORY, Belongings, Known, Stub
from loadtests.chaos.primitives.process_refs import ProcessRef, new_token

if TYPE_CHECKING:
    from pathlib import Path

_NAME: Final = "triton_python_backend_stub"


@pytest.fixture
def ended() -> ProcessRef:
    """A process that is gone."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        found = ProcessRef.of(process.pid)
    assert found is not None
    return found


@pytest.mark.parametrize("written", ["{}", "/{}"])
def test_a_region_is_cleared_away_as_its_server_wrote_it(
    ended: ProcessRef, written: str
) -> None:
    name = new_token()
    (SHARED_MEMORY / name).touch()
    left = Belongings(ended, Known("", ended.pid), (), (written.format(name),))
    assert left.left() == [f"shared memory {SHARED_MEMORY / name} is left"]
    left.sweep()
    assert left.left() == []
    assert not (SHARED_MEMORY / name).exists()


@pytest.mark.parametrize("up", [True, False])
def test_a_name_that_leads_out_of_shared_memory_is_not_followed(
    ended: ProcessRef, tmp_path: Path, *, up: bool
) -> None:
    innocent = tmp_path / "innocent"
    innocent.touch()
    name = os.path.relpath(innocent, SHARED_MEMORY) if up else str(innocent)
    names = (name, "", ".", "..", "/")
    hostile = Belongings(ended, Known("", ended.pid), (), names)
    assert hostile.left() == []
    hostile.sweep()
    assert innocent.exists()


def test_a_process_with_a_pid_of_many_digits_is_no_backend_process() -> None:
    command = [f"/b/{_NAME}", "-", "region", "1", "1", "1" * 5000, "/b"]
    with subprocess.Popen(
        command, executable=sys.executable, stdin=subprocess.PIPE
    ) as process:
        assert Stub.of(process.pid) is None
