"""Whether a measurement was left alone: windows, reasons, and a real server's processes."""

from __future__ import annotations

import dataclasses
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from load_runs import about
from waiting import patience

from loadtests.machine_guard import (
    Guard,
    GuardLimits,
    Reading,
    Watch,
    guarded,
    listeners,
    read,
    windows_of,
)
from loadtests.result import Requests, RunResult
from loadtests.target import Target

LIMITS = GuardLimits()
QUIET = Reading(
    monotonic=0.0, wall=1e9, busy=0.0, steal=0.0, ours=0.0, server=0.0, pressure=0.0
)


def readings(seconds: int, **a_second: float) -> list[Reading]:
    """A reading a second; counters rise by so much in each."""
    names = {"monotonic": 1.0, "wall": 1.0, "busy": 0.5, "ours": 0.3, "server": 0.2}
    names |= a_second
    return [
        dataclasses.replace(
            QUIET,
            **{
                name: getattr(QUIET, name) + rise * second
                for name, rise in names.items()
            },
        )
        for second in range(seconds + 1)
    ]


def watch(found: list[Reading]) -> Watch:
    return Watch(windows_of(found, 0.0), LIMITS)


def test_a_run_left_alone_is_valid() -> None:
    seen = watch(readings(10))
    assert len(seen.windows) == 10
    assert seen.verdict().valid
    assert not seen.verdict().warnings
    assert seen.mean("server_cpu") == pytest.approx(0.2)
    assert seen.between(0, 10).verdict().valid


@pytest.mark.parametrize(
    ("rises", "said"),
    [
        ({"busy": 0.65}, "other processes disturbed 10 of 10 windows"),
        ({"steal": 0.1}, "stolen processor time"),
        ({"ours": 0.9, "busy": 1.1}, "a busy sender"),
        ({"wall": 1.01}, "a step of the clock"),
    ],
)
def test_what_disturbs_every_window_makes_it_invalid_with_its_reason(
    rises, said
) -> None:
    verdict = watch(readings(10, **rises)).verdict()
    assert not verdict.valid
    assert said in str(verdict)


def test_a_run_notes_what_disturbed_it_and_strictly_is_invalid() -> None:
    seen = watch(readings(10, busy=0.65))
    run = RunResult.of(
        about(), Requests.empty(1), duration_seconds=1, sender_cpu_seconds=0
    )
    lenient, strict = (guarded(run, seen, strict=flag) for flag in (False, True))
    assert lenient.verdict.valid
    assert "other processes" in lenient.verdict.warnings[0]
    assert "other processes" in str(strict.verdict)


def test_a_disturbed_window_is_rejected_and_the_rest_counts() -> None:
    found = readings(10)
    found = [
        dataclasses.replace(r, wall=r.wall + 2.0) if r.monotonic >= 5 else r
        for r in found
    ]
    seen = watch(found)
    assert seen.verdict().valid
    assert "1 of 10 windows" in seen.verdict().warnings[0]
    assert not seen.between(4.2, 4.8).verdict().valid
    assert seen.between(6, 9).verdict().valid


def test_pressure_is_told_and_does_not_reject() -> None:
    verdict = watch(readings(10, pressure=0.7)).verdict()
    assert verdict.valid
    assert "waited for a CPU for 70 % of the time" in verdict.warnings[0]


def test_what_is_unknown_is_not_zero_and_not_a_reason() -> None:
    found = [
        dataclasses.replace(r, busy=None, steal=None, pressure=None, server=None)
        for r in readings(5)
    ]
    seen = watch(found)
    assert seen.windows[0].other_cpu is None
    assert seen.mean("steal") is None
    assert seen.verdict().valid


def test_too_short_a_run_says_that_nobody_watched() -> None:
    assert "not watched" in watch(readings(0)).verdict().warnings[0]


def test_the_machine_can_be_read() -> None:
    first = read()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    second = read()
    assert second.monotonic > first.monotonic
    assert second.ours - first.ours == pytest.approx(0.1, abs=0.08)
    assert first.busy is not None
    assert second.busy is not None
    assert second.busy >= first.busy


def test_a_guard_watches_while_its_block_runs() -> None:
    with Guard(None, GuardLimits(window_seconds=0.11)) as guard:
        time.sleep(0.6)
    assert 3 <= len(guard.watch().windows) <= 6


def test_a_server_on_this_machine_is_found_by_its_port_with_its_children() -> None:
    script = (
        "import socket,subprocess,sys,time\n"
        "s=socket.create_server(('127.0.0.1',0))\n"
        "p=subprocess.Popen([sys.executable,'-c','import time;time.sleep(60)'])\n"
        "print(s.getsockname()[1],p.pid,flush=True)\n"
        "sys.stdin.read()\n"
        "p.kill()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        port, child = map(int, server.stdout.readline().split())
        assert set(listeners(port)) == {server.pid, child}
        assert server.stdin is not None
        server.stdin.close()
        server.wait(patience(10))
    with socket.create_server(("127.0.0.1", 0)) as free:
        unused = free.getsockname()[1]
    assert listeners(unused) == ()


@pytest.mark.parametrize("name", ["docker-proxy", "pasta.avx2"])
def test_the_server_behind_a_containers_port_is_unknown(
    name: str, tmp_path: Path
) -> None:
    """Its processor time is not that of others, which Docker's proxy alone would make it."""
    proxy = tmp_path / name
    proxy.symlink_to(Path(sys.executable).resolve())
    script = (
        "import socket,sys\n"
        "s=socket.create_server(('127.0.0.1',0))\n"
        "print(s.getsockname()[1],flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [proxy, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        target = Target("grpc", f"127.0.0.1:{process.stdout.readline().strip()}")
        with Guard(target, GuardLimits(window_seconds=0.2)) as guard:
            time.sleep(0.5)
        assert process.stdin is not None
        process.stdin.close()
    windows = guard.watch().windows
    assert windows
    assert all(window.other_cpu is None for window in windows)
