"""Faults of CPU and memory, on a real Triton and a real kernel."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bad_networks import ask_model
from fault_cycles import injected, is_undone, recorded
from parts import as_nobody, require_root
from sites import MODELS, EmbeddedSite, empty_site
from waiting import patience

from loadtests.chaos.faults import FaultRefusedError
from loadtests.chaos.faults.disk_full import DiskFull
from loadtests.chaos.faults.resources import (
    MOST_PERCENT,
    CpuHog,
    CpuLimit,
    MemoryHog,
    MemoryLimit,
)
from loadtests.chaos.primitives.cgroups import Group
from loadtests.chaos.primitives.process_refs import ProcessRef, new_token, started_with

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from exporter.triton.embedded import EmbeddedTriton


@pytest.fixture(scope="module")
def site(loaded) -> EmbeddedSite:
    return EmbeddedSite(loaded)


@pytest.fixture
def sleepers() -> Generator[list[subprocess.Popen]]:
    """Two processes that are nobody's."""
    user = 65_534 if os.geteuid() == 0 else None
    found = [subprocess.Popen(["sleep", "60"], user=user) for _ in range(2)]
    yield found
    for sleeper in found:
        sleeper.kill()
        sleeper.wait()


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
    require_root("this fault")
    processes = [site.server(), *site.stubs()]
    homes = [group_of(process, "cpu") for process in processes]
    fault = CpuLimit(cpu_percent=5)
    record = injected(fault, site, undone)
    before, started = cpu_seconds(processes), time.monotonic()
    while time.monotonic() - started < 1.0:
        ask_model(site.http)
    used = cpu_seconds(processes) - before
    taken = time.monotonic() - started
    # A quota may be run over by a tick of each CPU in each period.
    assert used < 0.05 * taken * 2 + 0.1
    is_undone(fault, record)
    assert [group_of(process, "cpu") for process in processes] == homes
    ask_model(site.http)


def test_what_a_limited_server_starts_goes_home_too(
    sleepers: list[subprocess.Popen], undone: list
):
    require_root("this fault")
    server, later = (ProcessRef.of(sleeper.pid) for sleeper in sleepers)
    home = group_of(server, "cpu")
    fault = CpuLimit()
    record = injected(fault, empty_site(pid=server.pid), undone)
    Group.from_record(record).take([later])
    is_undone(fault, record)
    assert group_of(later, "cpu") == home


def test_a_group_of_version_2_is_left_and_removed(sleepers: list[subprocess.Popen]):
    """Its controllers may be version 1's here; processes move in and out all the same."""
    require_root("this fault")
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
    require_root("this fault")
    fault = CpuLimit(cpu_percent=50)
    record = injected(fault, site, undone)
    group = Group.from_record(record)
    server = site.server()
    (group.home / "cgroup.procs").write_text(str(server.pid))
    assert fault.missing(record) == [f"process {server.pid} is not limited"]
    (group.folder / record["limits"][-1][0]).write_text("-1")
    assert len(fault.missing(record)) == 2


def test_hogs_run_take_their_share_and_end(site: EmbeddedSite, undone: list):
    fault = CpuHog(processes=2, busy_percent=20)
    record = injected(fault, site, undone)
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
    record = injected(fault, empty_site(), undone)
    hogs = started_with(record["token"])
    parents = {Path(f"/proc/{hog.pid}/stat").read_text().split()[3] for hog in hogs}
    first = next(hog for hog in hogs if str(hog.pid) in parents)
    os.kill(first.pid, 9)
    for hog in hogs:
        assert hog.wait_until(None, 20)
    assert fault.residue(record) == []


# Memory.


def oom_kills(record: dict) -> int:
    """How many processes of the fault's group the kernel has killed."""
    group = Group.from_record(record)
    name = "memory.oom_control" if group.version == 1 else "memory.events"
    lines = (group.folder / name).read_text().splitlines()
    return int(dict(line.split() for line in lines)["oom_kill"])


def test_a_server_that_wants_more_than_its_limit_is_killed_by_the_kernel(
    start_triton: Callable[..., EmbeddedTriton], tmp_path: Path, undone: list
):
    require_root("this fault")
    shutil.copytree(MODELS / "double", tmp_path / "models" / "double")
    server = start_triton(tmp_path / "models")
    site = EmbeddedSite(server)
    process = site.server()
    fault = MemoryLimit(headroom_mebibytes=24)
    record = injected(fault, site, undone)
    ask_model(server.http)
    assert oom_kills(record) == 0
    deadline = time.monotonic() + patience()
    while process.alive:
        assert time.monotonic() < deadline, "it took all of it and lives"
        with contextlib.suppress(
            OSError, ValueError, KeyError, http.client.HTTPException
        ):
            ask_model(server.http, padding=64 << 20, timeout=5)
    assert oom_kills(record) >= 1
    is_undone(fault, record)


def test_a_hog_holds_its_share_and_leaves_the_rest(undone: list):
    fault = MemoryHog(available_percent=2)
    record = injected(fault, empty_site(), undone)
    assert record["leave_bytes"] >= record["bytes"] * (100 - MOST_PERCENT) / 2 * 0.99
    (hog,) = started_with(record["token"])
    assert Path(f"/proc/{hog.pid}/oom_score_adj").read_text().strip() == "1000"
    is_undone(fault, record)


def test_a_hog_takes_nothing_that_is_to_be_left_to_others(undone: list):
    fault = MemoryHog(available_percent=1)
    record = recorded(fault, empty_site())
    undone.append((MemoryHog, record))
    record["leave_bytes"] = 1 << 60
    fault.inject(record)
    assert "bytes of" in fault.missing(record)[0]
    assert started_with(record["token"])


def test_more_than_a_stated_share_cannot_be_asked_for():
    with pytest.raises(ValueError, match="less than or equal to 80"):
        MemoryHog(available_percent=90)


# Without root.


def test_what_needs_root_is_refused_with_what_does_not(
    sleepers: list[subprocess.Popen], reachable_path: Path
):
    require_root("to be two users")
    site = empty_site(trace_folder=reachable_path, pid=sleepers[0].pid)
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
            fault.require(empty_site())
