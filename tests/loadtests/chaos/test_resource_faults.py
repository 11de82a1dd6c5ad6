"""Neighbours that take CPU and memory, on a real kernel."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from fault_cycles import injected, is_undone, recorded
from receiver import Receiver
from sites import empty_site

from loadtests.chaos.faults.model_faults import UnloadModel
from loadtests.chaos.faults.sustained_faults import MOST_PERCENT, CpuHog, MemoryHog
from loadtests.chaos.primitives.process_refs import ProcessRef, started_with
from loadtests.errors import FaultRefusedError

# CPU.


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


# Memory.


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


def test_what_is_no_triton_is_refused() -> None:
    with Receiver(body=b"<html>") as page:
        site = empty_site(http=page.address)
        with pytest.raises(FaultRefusedError, match="answers, but is not Triton"):
            UnloadModel(model="double").prepare(site)
