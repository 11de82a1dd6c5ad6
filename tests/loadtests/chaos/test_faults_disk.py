"""A volume of traces that is full, on a real Triton and a real kernel."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from bad_networks import ask_model
from fault_cycles import injected, is_undone
from parts import as_nobody, require_root
from sites import MODELS, EmbeddedSite, empty_site
from waiting import wait_until

from loadtests.chaos.faults import FaultRefusedError
from loadtests.chaos.faults.disk_full import DiskFull

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from exporter.triton.embedded import EmbeddedTriton


@pytest.fixture(scope="module")
def site(loaded) -> EmbeddedSite:
    return EmbeddedSite(loaded)


def test_a_volume_over_the_trace_folder_is_full_and_hides_what_is_there(
    site: EmbeddedSite, tmp_path: Path, undone: list
):
    require_root("this fault")
    here = EmbeddedSite(site.triton, trace_folder=tmp_path)
    (tmp_path / "trace.0").write_text("kept")
    fault = DiskFull()
    record = injected(fault, here, undone)
    assert record["mechanism"] == "mount"
    with pytest.raises(OSError, match="No space left"):
        (tmp_path / "trace.1").write_text("x")
    assert "is mounted over" in fault.residue(record)[0]
    is_undone(fault, record)
    assert (tmp_path / "trace.0").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trace.0"]
    (tmp_path / "trace.1").write_text("x")


def test_a_file_that_is_open_there_does_not_keep_the_volume(
    tmp_path: Path, undone: list
):
    require_root("this fault")
    fault = DiskFull(mechanism="mount")
    record = injected(fault, empty_site(trace_folder=tmp_path), undone)
    with (tmp_path / f".{record['token']}").open("rb"):
        is_undone(fault, record)


@pytest.fixture
def volume(tmp_path: Path) -> Generator[Path]:
    """A small volume of its own."""
    require_root("this fault")
    folder = tmp_path / "volume"
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tritonwatch-test", folder],
        check=True,
    )
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_small_volume_is_filled_by_a_file(volume: Path, undone: list):
    (volume / "trace.0").write_text("kept")
    fault = DiskFull()
    record = injected(fault, empty_site(trace_folder=volume), undone)
    assert record["mechanism"] == "fill"
    with pytest.raises(OSError, match="No space left"):
        (volume / "trace.1").write_text("x" * 10_000)
    is_undone(fault, record)
    (volume / "trace.1").unlink(missing_ok=True)
    (volume / "trace.1").write_text("x" * 10_000)


def test_room_that_somebody_makes_is_missed(volume: Path, undone: list):
    (volume / "trace.0").write_text("x" * 100_000)
    fault = DiskFull(mechanism="fill")
    record = injected(fault, empty_site(trace_folder=volume), undone)
    (volume / "trace.0").unlink()
    assert "bytes free" in fault.missing(record)[0]


def test_the_machines_own_disk_is_never_filled(tmp_path: Path):
    with pytest.raises(FaultRefusedError, match="not a volume of its own") as refused:
        DiskFull(mechanism="fill").require(empty_site(trace_folder=tmp_path))
    assert "mount -t tmpfs" in refused.value.alternative
    with pytest.raises(FaultRefusedError, match="no folder of trace files"):
        DiskFull().require(empty_site())
    assert list(tmp_path.iterdir()) == []


def test_without_root_it_is_refused_with_what_to_do(reachable_path: Path):
    require_root("to be two users")
    site = empty_site(trace_folder=reachable_path)
    # Root may. What it imports for that may lie where nobody can read it.
    DiskFull().require(site)
    with as_nobody(), pytest.raises(FaultRefusedError) as refused:
        DiskFull().require(site)
    assert "mount: needs root" in refused.value.reason
    assert "mount -t tmpfs" in refused.value.alternative


def test_triton_answers_while_its_trace_files_cannot_be_written(
    start_triton: Callable[..., EmbeddedTriton], tmp_path: Path, undone: list
):
    require_root("this fault")
    shutil.copytree(MODELS / "double", tmp_path / "models" / "double")
    traces = tmp_path / "traces"
    traces.mkdir()
    options = ("mode=triton", f"triton,file={traces / 'trace.json'}")
    level = ("level=TIMESTAMPS", "rate=1", "triton,log-frequency=1", "count=-1")
    server = start_triton(
        tmp_path / "models",
        arguments=[f"--trace-config={each}" for each in (*options, *level)],
    )
    ask_model(server.http)
    wait_until(lambda: any(traces.iterdir()))
    fault = DiskFull()
    record = injected(fault, EmbeddedSite(server, trace_folder=traces), undone)
    for _ in range(5):
        ask_model(server.http)
    assert fault.missing(record) == []
    assert sum(path.stat().st_size for path in traces.glob("trace*")) == 0
    is_undone(fault, record)
    seen = set(traces.iterdir())
    ask_model(server.http)
    wait_until(lambda: bool(set(traces.iterdir()) - seen))
