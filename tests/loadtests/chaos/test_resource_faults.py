"""Neighbours that take CPU time, on a real kernel."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from fault_cycles import injected, is_undone
from receiver import Receiver
from sites import empty_site

from loadtests.chaos.faults.model_faults import UnloadModel
from loadtests.chaos.faults.sustained_faults import CpuHog
from loadtests.chaos.primitives.process_refs import ProcessRef, started_with
from loadtests.errors import FaultRefusedError


def cpu_seconds(processes: list[ProcessRef]) -> float:
    """Of the processes, so far."""
    ticks = 0
    for process in processes:
        text = Path(f"/proc/{process.pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def test_hogs_run_take_their_share_and_end(undone: list):
    fault = CpuHog(processes=2, busy_percent=20)
    record = injected(fault, empty_site(), undone)
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


def test_what_is_no_triton_is_refused() -> None:
    with Receiver(body=b"<html>") as page:
        site = empty_site(http=page.address)
        with pytest.raises(FaultRefusedError, match="answers, but is not Triton"):
            UnloadModel(model="double").prepare(site)
