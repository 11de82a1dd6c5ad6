"""Faults of the sidecar beside a real Triton: killed, and with a wall clock that jumps."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import json
import os
import subprocess
import sys
import time
from email.utils import parsedate_to_datetime
from subprocess import PIPE
from typing import TYPE_CHECKING

import pytest
from fault_cycles import as_stranger, in_effect, recorded, undone
from parts import require
from pydantic import ValidationError
from sidecars import SidecarProcess
from sites import EmbeddedSite, empty_site
from waiting import wait_until

from loadtests.chaos.faults import FaultRefusedError, clock_jump
from loadtests.chaos.faults.clock_jump import ClockJump
from loadtests.chaos.faults.process_faults import KillSidecar
from loadtests.chaos.faults.resources import Descriptors

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from playground import Playground

STAMP = "tritonwatch_collector_last_success_timestamp_seconds"
HOUR = 3600


@pytest.fixture(scope="module")
def started() -> Generator[list[SidecarProcess]]:
    """The sidecars of these tests, the last of which may still run."""
    sidecars: list[SidecarProcess] = []
    yield sidecars
    for sidecar in sidecars:
        sidecar.close()


@pytest.fixture
def site(
    breakable: Playground, tmp_path: Path, started: list[SidecarProcess]
) -> EmbeddedSite:
    """With a sidecar that looks at the server five times a second."""
    if started and started[-1].running:
        return EmbeddedSite(breakable.triton, beside=started[-1])
    every = {"interval_seconds": 0.2}
    target = {name: getattr(breakable, name) for name in ("grpc", "http", "metrics")}
    config = {
        "target": target,
        "listen": {"address": "127.0.0.1", "port": 0},
        "collectors": [{"kind": "server", **every}, {"kind": "statistics", **every}],
        "probes": [],
        "power": None,
    }
    started.append(SidecarProcess(config, tmp_path / "sidecar", clock=True))
    started[-1].wait_listening()
    return EmbeddedSite(breakable.triton, beside=started[-1])


def ahead(site: EmbeddedSite) -> float:
    """Seconds by which the sidecar's latest stamp is ahead of this process's clock."""
    page = site.beside.wait(lambda page: page.value(STAMP, collector="server"))
    return page.value(STAMP, collector="server") - time.time()


def dated(site: EmbeddedSite) -> float:
    """The same by the date of its latest answer."""
    date = site.beside.get("/metrics").headers["date"]
    return parsedate_to_datetime(date).timestamp() - time.time()


def test_a_killed_sidecar_answers_nobody(site) -> None:
    with in_effect(KillSidecar(), site):
        with pytest.raises(OSError, match="refused"):
            site.beside.get("/metrics")
        assert site.sidecar() is None


@pytest.mark.parametrize("seconds", [HOUR, -HOUR], ids=["forward", "back"])
def test_the_clock_of_the_sidecar_jumps_and_no_other(site, seconds) -> None:
    require("faketime")
    assert abs(ahead(site)) < HOUR / 2
    wall = time.time() - time.monotonic()
    with in_effect(ClockJump(seconds=seconds), site):
        wait_until(
            lambda: abs(ahead(site) - seconds) < HOUR / 2, "its clock has jumped"
        )
        wait_until(lambda: abs(dated(site) - seconds) < HOUR / 2, "its answers jump")
        assert time.time() - time.monotonic() == pytest.approx(wall, abs=HOUR / 2)
    wait_until(lambda: abs(ahead(site)) < HOUR / 2, "its clock is right")
    assert site.beside.running


CLOCKS = """
import ctypes, json, sys, time
libc = ctypes.CDLL(None)
class Pair(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_int64), ("micros", ctypes.c_int64)]
libc.time.restype = ctypes.c_int64
for _ in sys.stdin:
    pair, one = Pair(), ctypes.c_int64()
    libc.gettimeofday(ctypes.byref(pair), None)
    libc.time(ctypes.byref(one))
    told = {
        "realtime": time.clock_gettime(time.CLOCK_REALTIME),
        "coarse": time.clock_gettime(5),
        "gettimeofday": pair.seconds,
        "time": libc.time(None),
        "time_stored": one.value,
    }
    same = {
        "monotonic": time.monotonic(),
        "boottime": time.clock_gettime(time.CLOCK_BOOTTIME),
        "process": time.process_time(),
    }
    print(json.dumps([told, same]), flush=True)
"""


@pytest.mark.parametrize("seconds", [-(10**9), 10**9, 1])
def test_every_way_to_read_the_wall_clock_jumps(seconds, tmp_path) -> None:
    require("faketime")
    with clock_reader(clock_jump.environment(tmp_path / "clock")) as child:

        def clocks() -> tuple[dict[str, float], dict[str, float]]:
            child.stdin.write("\n")
            child.stdin.flush()
            told, same = json.loads(child.stdout.readline())
            now = time.time()
            return {name: value - now for name, value in told.items()}, same

        _, before = clocks()
        record = recorded(ClockJump(seconds=seconds), empty_site(sidecar_pid=child.pid))
        ClockJump(seconds=seconds).inject(record)
        told, after = clocks()
        undone(ClockJump(seconds=seconds), record)
        right, _ = clocks()
        child.stdin.close()
    # A process that is asked through pipes answers a while later.
    assert told == pytest.approx(dict.fromkeys(told, seconds), abs=30)
    assert right == pytest.approx(dict.fromkeys(right, 0), abs=30)
    assert after == pytest.approx(before, abs=30)


@contextlib.contextmanager
def clock_reader(environment: dict[str, str]) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", CLOCKS],
        env={**os.environ, **environment},
        stdin=PIPE,
        stdout=PIPE,
        text=True,
    ) as child:
        # Before it runs, its libraries are not in memory.
        child.stdin.write("\n")
        child.stdin.flush()
        child.stdout.readline()
        yield child
        child.stdin.close()


def test_the_clock_of_a_process_that_already_runs_is_refused() -> None:
    require("faketime")
    with clock_reader({}) as child:
        site = empty_site(sidecar_pid=child.pid)
        with pytest.raises(FaultRefusedError, match="not run under libfaketime") as no:
            ClockJump().require(site)
        assert "`sidecar: {}`" in no.value.alternative


def test_a_timestamp_file_that_cannot_be_written_is_refused(tmp_path) -> None:
    require("faketime")
    folder = tmp_path / "gone"
    folder.mkdir()
    with clock_reader(clock_jump.environment(folder / "clock")) as child:
        (folder / "clock").unlink()
        folder.rmdir()
        with pytest.raises(FaultRefusedError, match="can be written to"):
            ClockJump().require(empty_site(sidecar_pid=child.pid))


def test_a_file_that_is_gone_has_taken_the_fault_along(tmp_path) -> None:
    require("faketime")
    with clock_reader(clock_jump.environment(tmp_path / "clock")) as child:
        record = recorded(ClockJump(), empty_site(sidecar_pid=child.pid))
        ClockJump().inject(record)
        (tmp_path / "clock").unlink()
        undone(ClockJump(), record)


def test_jumps_are_undone_one_by_one(tmp_path) -> None:
    require("faketime")
    with clock_reader(clock_jump.environment(tmp_path / "clock")) as child:
        site = empty_site(sidecar_pid=child.pid)
        first = recorded(ClockJump(seconds=60), site)
        ClockJump(seconds=60).inject(first)
        second = recorded(ClockJump(seconds=-60), site)
        ClockJump(seconds=-60).inject(second)
        undone(ClockJump(seconds=-60), second)
        assert ClockJump().missing(first) == []
        undone(ClockJump(seconds=60), first)
        assert (tmp_path / "clock").read_text() == "+0\n"


def test_the_sidecar_goes_on_without_spare_descriptors(site) -> None:
    with in_effect(Descriptors(of="sidecar"), site):
        with pytest.raises(TimeoutError):
            site.beside.get("/metrics", timeout=0.5)
        assert site.beside.running
    assert site.beside.get("/metrics").status == 200


def test_a_sidecar_of_another_user_is_refused(site) -> None:
    for fault in (KillSidecar(), ClockJump(), Descriptors(of="sidecar")):
        with as_stranger(), pytest.raises(FaultRefusedError, match="another user's"):
            fault.require(site)


def test_a_jump_by_nothing_is_no_jump() -> None:
    with pytest.raises(ValidationError, match="found 0, which is no jump"):
        ClockJump(seconds=0)


def test_a_sidecar_never_sleeps_since_its_clock_may_be_libfaketimes() -> None:
    """Under libfaketime, `time.sleep` raises EINVAL; waits on events do not."""
    listing = "import sys, exporter.app; print(*(m for m in sys.modules))"
    told = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True
    )
    ours = [name for name in told.stdout.split() if name.startswith("exporter.")]
    sleeping = [
        f"{name}:{node.lineno}"
        for name in ours
        for node in ast.walk(
            ast.parse(inspect.getsource(importlib.import_module(name)))
        )
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep"
    ]
    assert len(ours) > 50
    assert not sleeping
