"""Faults of CPU, memory and disk, on a real Triton and a real kernel."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from parts import as_nobody
from sites import EmbeddedSite, EmptySite

from loadtests.chaos.cgroups import Group
from loadtests.chaos.faults import FaultRefusedError
from loadtests.chaos.faults.cpu_hog import CpuHog
from loadtests.chaos.faults.cpu_limit import CpuLimit
from loadtests.chaos.faults.disk_full import DiskFull
from loadtests.chaos.faults.memory_hog import MOST_PERCENT, MemoryHog
from loadtests.chaos.faults.memory_limit import MemoryLimit
from loadtests.chaos.processes import ProcessRef, new_token, started_with

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from exporter.triton.embedded import EmbeddedTriton
    from loadtests.chaos.faults import Fault

DOUBLE = Path(__file__).parents[2] / "data" / "models" / "double"


@pytest.fixture
def undone() -> Generator[list[tuple[type[Fault], dict[str, Any]]]]:
    """What is in it is reverted in any case: the host is everybody's."""
    injected: list[tuple[type[Fault], dict[str, Any]]] = []
    yield injected
    for kind, record in reversed(injected):
        kind.revert(record)


@pytest.fixture(scope="module")
def site(loaded) -> EmbeddedSite:
    return EmbeddedSite(loaded)


@dataclass(frozen=True)
class ProcessSite(EmptySite):
    """A process that stands for a server."""

    pid: int = 0

    def server(self) -> ProcessRef | None:
        return ProcessRef.of(self.pid)


@pytest.fixture
def sleepers() -> Generator[list[subprocess.Popen]]:
    """Two processes that are nobody's."""
    user = 65_534 if os.geteuid() == 0 else None
    found = [subprocess.Popen(["sleep", "60"], user=user) for _ in range(2)]
    yield found
    for sleeper in found:
        sleeper.kill()
        sleeper.wait()


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


def prepared(fault: Fault, site: Any, undone: list) -> dict[str, Any]:
    """A record as a journal gives it back, which will be undone in any case."""
    fault.require(site)
    record = json.loads(json.dumps(fault.prepare(site)))
    assert fault.missing(record)
    assert fault.residue(record) == []
    undone.append((type(fault), record))
    # To undo what was never done does nothing.
    type(fault).revert(record)
    assert fault.residue(record) == []
    return record


def is_undone(fault: Fault, record: dict[str, Any]) -> None:
    for _ in range(2):
        type(fault).revert(record)
        assert fault.residue(record) == []
    assert fault.missing(record)


def infer(server: EmbeddedTriton, rows: int = 1, timeout: float = 30.0) -> float:
    """Seconds of one inference of `double`, its answer checked."""
    data = [1.0] * (8 * rows)
    tensor = {"name": "x", "shape": [rows, 8], "datatype": "FP32", "data": data}
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.ports.http, timeout=timeout
    )
    started = time.perf_counter()
    with contextlib.closing(connection):
        connection.request(
            "POST", "/v2/models/double/infer", json.dumps({"inputs": [tensor]})
        )
        answer = json.load(connection.getresponse())
    assert answer["outputs"][0]["data"] == [2.0] * (8 * rows)
    return time.perf_counter() - started


# CPU.


def cpu_seconds(processes: list[ProcessRef]) -> float:
    """Of the processes, so far."""
    ticks = 0
    for process in processes:
        text = Path(f"/proc/{process.pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def group_of(process: ProcessRef, controller: str) -> str:
    for line in Path(f"/proc/{process.pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return ""


def test_a_limited_server_gets_no_more_than_its_share_and_goes_home(
    site: EmbeddedSite, undone: list
):
    needs_root()
    processes = [site.server(), *site.stubs()]
    homes = [group_of(process, "cpu") for process in processes]
    fault = CpuLimit(cpu_percent=5)
    record = prepared(fault, site, undone)
    fault.inject(record)
    assert fault.missing(record) == []
    assert fault.residue(record)
    before, started = cpu_seconds(processes), time.monotonic()
    while time.monotonic() - started < 1.0:
        infer(site.triton)
    used = cpu_seconds(processes) - before
    taken = time.monotonic() - started
    # A quota may be run over by a tick of each CPU in each period.
    assert used < 0.05 * taken * 2 + 0.1
    is_undone(fault, record)
    assert [group_of(process, "cpu") for process in processes] == homes
    infer(site.triton)


def test_what_a_limited_server_starts_goes_home_too(
    sleepers: list[subprocess.Popen], undone: list
):
    needs_root()
    server, later = (ProcessRef.of(sleeper.pid) for sleeper in sleepers)
    home = group_of(server, "cpu")
    fault = CpuLimit()
    record = prepared(fault, ProcessSite(pid=server.pid), undone)
    fault.inject(record)
    Group.from_record(record).take([later])
    is_undone(fault, record)
    assert group_of(later, "cpu") == home


def test_a_group_of_version_2_is_left_and_removed(sleepers: list[subprocess.Popen]):
    """Its controllers may be version 1's here; processes move in and out all the same."""
    needs_root()
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    roots = [line.split()[1] for line in mounts if line.split()[2] == "cgroup2"]
    if not roots:
        pytest.skip("no control groups of version 2 are mounted")
    members = [ProcessRef.of(sleeper.pid) for sleeper in sleepers]
    home = Path(roots[0]) / group_of(members[0], "").lstrip("/")
    group = Group(2, home, Path(roots[0]) / new_token())
    try:
        group.make()
        group.take(members)
        assert group.pids() == {member.pid for member in members}
    finally:
        group.remove()
    group.remove()
    assert not group.there
    assert Path(roots[0]) / group_of(members[0], "").lstrip("/") == home


def test_a_process_that_leaves_the_group_is_missed(site: EmbeddedSite, undone: list):
    needs_root()
    fault = CpuLimit(cpu_percent=50)
    record = prepared(fault, site, undone)
    fault.inject(record)
    group = Group.from_record(record)
    server = site.server()
    (group.home / "cgroup.procs").write_text(str(server.pid))
    assert fault.missing(record) == [f"process {server.pid} is not limited"]
    (group.folder / record["limits"][-1][0]).write_text("-1")
    assert len(fault.missing(record)) == 2


def test_hogs_run_take_their_share_and_end(site: EmbeddedSite, undone: list):
    fault = CpuHog(processes=2, busy_percent=20)
    record = prepared(fault, site, undone)
    fault.inject(record)
    assert fault.missing(record) == []
    hogs = started_with(record["token"])
    assert len(hogs) == 2
    before, started = cpu_seconds(hogs), time.monotonic()
    time.sleep(1.0)
    share = (cpu_seconds(hogs) - before) / (time.monotonic() - started)
    # Of two CPUs a fifth each, or less where others want them.
    assert 0 < share < 2 * 0.2 * 1.5
    is_undone(fault, record)
    assert not any(hog.alive for hog in hogs)


def test_hogs_end_with_the_first_of_them(undone: list):
    fault = CpuHog(processes=3, busy_percent=1)
    record = prepared(fault, EmptySite(), undone)
    fault.inject(record)
    hogs = started_with(record["token"])
    parents = {Path(f"/proc/{hog.pid}/stat").read_text().split()[3] for hog in hogs}
    first = next(hog for hog in hogs if str(hog.pid) in parents)
    os.kill(first.pid, 9)
    for hog in hogs:
        assert hog.wait_until(None, 20)
    assert fault.residue(record) == []


# Memory.


def test_a_server_that_wants_more_than_its_limit_is_killed_by_the_kernel(
    start_triton: Callable[..., EmbeddedTriton], tmp_path: Path, undone: list
):
    needs_root()
    shutil.copytree(DOUBLE, tmp_path / "models" / "double")
    server = start_triton(tmp_path / "models")
    site = EmbeddedSite(server)
    process = site.server()
    fault = MemoryLimit(headroom_mebibytes=24)
    record = prepared(fault, site, undone)
    fault.inject(record)
    assert fault.missing(record) == []
    infer(server)
    assert MemoryLimit.kills(record) == 0
    deadline = time.monotonic() + 30
    while process.alive:
        assert time.monotonic() < deadline, "it took all of it and lives"
        with contextlib.suppress(
            OSError, ValueError, KeyError, http.client.HTTPException
        ):
            # Refused by its shape, after it was read.
            infer(server, rows=2_000_000, timeout=5)
    assert MemoryLimit.kills(record) >= 1
    is_undone(fault, record)


def test_a_hog_holds_its_share_and_leaves_the_rest(undone: list):
    fault = MemoryHog(available_percent=2)
    record = prepared(fault, EmptySite(), undone)
    assert record["leave_bytes"] >= record["bytes"] * (100 - MOST_PERCENT) / 2 * 0.99
    fault.inject(record)
    assert fault.missing(record) == []
    (hog,) = started_with(record["token"])
    assert Path(f"/proc/{hog.pid}/oom_score_adj").read_text().strip() == "1000"
    is_undone(fault, record)


def test_a_hog_takes_nothing_that_is_to_be_left_to_others(undone: list):
    fault = MemoryHog(available_percent=1)
    record = prepared(fault, EmptySite(), undone)
    record["leave_bytes"] = 1 << 60
    fault.inject(record)
    assert "bytes of" in fault.missing(record)[0]
    assert started_with(record["token"])


def test_more_than_a_stated_share_cannot_be_asked_for():
    with pytest.raises(ValueError, match="less than or equal to 80"):
        MemoryHog(available_percent=90)


# Disk.


def test_a_volume_over_the_trace_folder_is_full_and_hides_what_is_there(
    site: EmbeddedSite, tmp_path: Path, undone: list
):
    needs_root()
    here = EmbeddedSite(site.triton, trace_folder=tmp_path)
    (tmp_path / "trace.0").write_text("kept")
    fault = DiskFull()
    record = prepared(fault, here, undone)
    assert record["mechanism"] == "mount"
    fault.inject(record)
    assert fault.missing(record) == []
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
    needs_root()
    fault = DiskFull(mechanism="mount")
    record = prepared(fault, EmptySite(trace_folder=tmp_path), undone)
    fault.inject(record)
    with (tmp_path / f".{record['token']}").open("rb"):
        is_undone(fault, record)


@pytest.fixture
def volume(tmp_path: Path) -> Generator[Path]:
    """A small volume of its own."""
    needs_root()
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
    record = prepared(fault, EmptySite(trace_folder=volume), undone)
    assert record["mechanism"] == "fill"
    fault.inject(record)
    assert fault.missing(record) == []
    with pytest.raises(OSError, match="No space left"):
        (volume / "trace.1").write_text("x" * 10_000)
    is_undone(fault, record)
    (volume / "trace.1").unlink(missing_ok=True)
    (volume / "trace.1").write_text("x" * 10_000)


def test_room_that_somebody_makes_is_missed(volume: Path, undone: list):
    (volume / "trace.0").write_text("x" * 100_000)
    fault = DiskFull(mechanism="fill")
    record = prepared(fault, EmptySite(trace_folder=volume), undone)
    fault.inject(record)
    (volume / "trace.0").unlink()
    assert "bytes free" in fault.missing(record)[0]


def test_the_machines_own_disk_is_never_filled(tmp_path: Path):
    with pytest.raises(FaultRefusedError, match="not a volume of its own") as refused:
        DiskFull(mechanism="fill").require(EmptySite(trace_folder=tmp_path))
    assert "mount -t tmpfs" in refused.value.alternative
    with pytest.raises(FaultRefusedError, match="no folder of trace files"):
        DiskFull().require(EmptySite())
    assert list(tmp_path.iterdir()) == []


def test_triton_answers_while_its_trace_files_cannot_be_written(
    start_triton: Callable[..., EmbeddedTriton], tmp_path: Path, undone: list
):
    needs_root()
    shutil.copytree(DOUBLE, tmp_path / "models" / "double")
    traces = tmp_path / "traces"
    traces.mkdir()
    options = ("mode=triton", f"triton,file={traces / 'trace.json'}")
    level = ("level=TIMESTAMPS", "rate=1", "triton,log-frequency=1", "count=-1")
    server = start_triton(
        tmp_path / "models",
        arguments=[f"--trace-config={each}" for each in (*options, *level)],
    )
    infer(server)
    wait_until(lambda: any(traces.iterdir()))
    fault = DiskFull()
    record = prepared(fault, EmbeddedSite(server, trace_folder=traces), undone)
    fault.inject(record)
    for _ in range(5):
        infer(server)
    assert fault.missing(record) == []
    assert sum(path.stat().st_size for path in traces.glob("trace*")) == 0
    is_undone(fault, record)
    seen = set(traces.iterdir())
    infer(server)
    wait_until(lambda: bool(set(traces.iterdir()) - seen))


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Without root.


def test_what_needs_root_is_refused_with_what_does_not(
    sleepers: list[subprocess.Popen], reachable_path: Path
):
    if os.geteuid() != 0:
        pytest.skip("needs root, to do without it")
    site = ProcessSite(trace_folder=reachable_path, pid=sleepers[0].pid)
    for fault, reason, alternative in (
        (CpuLimit(), "needs root", "cpu_hog"),
        (MemoryLimit(), "needs root", "memory_hog"),
        (DiskFull(), "mount: needs root", "mount -t tmpfs"),
    ):
        # Root may. What it imports for that may lie where nobody can read it.
        fault.require(site)
        with as_nobody(), pytest.raises(FaultRefusedError) as refused:
            fault.require(site)
        assert reason in refused.value.reason
        assert alternative in refused.value.alternative


def test_without_a_server_a_limit_is_refused():
    for fault in (CpuLimit(), MemoryLimit()):
        with pytest.raises(FaultRefusedError, match="no server process"):
            fault.require(EmptySite())
