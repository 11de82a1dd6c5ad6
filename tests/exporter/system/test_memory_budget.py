"""The limit of memory, from control groups of both versions, and what is done near it."""

from __future__ import annotations

import gc
import threading
import weakref
from itertools import count

import pytest

from exporter.system.memory import MemoryBudget, group_limit

UNLIMITED_V1 = "9223372036854771712\n"
POD = "kubepods/pod7/container"


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        # In a container: the group's path is hidden.
        ("0::/", {"memory.max": "536870912\n"}, 512 << 20),
        # On a host: the lowest limit of any group above counts.
        (
            f"0::/{POD}",
            {f"{POD}/memory.max": "max", "kubepods/memory.max": "4096"},
            4096,
        ),
        (f"0::/{POD}", {f"{POD}/memory.max": "max"}, None),
        # The path is the host's, the mount the container's.
        (f"4:memory:/{POD}", {"memory/memory.limit_in_bytes": "4096"}, 4096),
        (f"4:memory:/{POD}", {f"memory/{POD}/memory.limit_in_bytes": "4096"}, 4096),
        ("4:memory:/", {"memory/memory.limit_in_bytes": UNLIMITED_V1}, None),
        ("5:cpu,cpuacct:/", {"memory/memory.limit_in_bytes": "4096"}, None),
        ("0::/", {"memory.max": "nonsense"}, None),
        ("", {}, None),
    ],
)
def test_the_limit_is_that_of_the_control_group(tmp_path, own, files, limit):
    groups = tmp_path / "groups"
    groups.write_text(f"9:pids:/x\n{own}\n")
    for name, text in files.items():
        file = tmp_path / "mounted" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert group_limit(groups, tmp_path / "mounted") == limit
    assert group_limit(tmp_path / "none", tmp_path) is None


class Process:
    """A process of which `freed` bytes can be given back."""

    def __init__(self, limit):
        self.now = self.trims = self.freed = self.collections = 0
        self.resident = 1000 << 20
        self.reads = 0
        self.budget = MemoryBudget(
            limit,
            resident=self._read,
            trim=self._trim,
            collect=self._collect,
            clock=lambda: self.now,
        )

    def _collect(self):
        self.collections += 1

    def _read(self):
        self.reads += 1
        return self.resident

    def _trim(self):
        self.trims += 1
        self.resident -= self.freed
        self.freed = 0


def test_free_memory_is_given_back_before_anything_is_refused():
    process = Process(900 << 20)
    process.freed = 200 << 20
    process.now = 2
    assert not process.budget.exceeded
    process.resident = 950 << 20
    process.now = 3
    assert process.budget.exceeded
    assert process.trims == 2
    process.resident = 899 << 20
    assert process.budget.exceeded, "it is read ten times a second at most"
    process.now = 3.2
    assert not process.budget.exceeded


def test_a_limit_of_the_control_group_that_is_changed_is_followed():
    group = [1200 << 20]
    budget = MemoryBudget(
        1000 << 20, group=lambda: group[0], resident=lambda: 800 << 20
    )
    assert budget.limit_bytes == 900 << 20
    for group[0], limit in ((400 << 20, 300 << 20), (None, 1000 << 20)):
        budget.tidy()
        assert budget.limit_bytes == limit


def test_a_flood_costs_ten_reads_and_one_trim_a_second():
    process = Process(900 << 20)
    for tick in range(1, 10_001):
        process.now = tick / 1000
        assert process.budget.exceeded == (tick >= 100)
    assert process.trims <= 10
    assert process.reads <= 10 * 10 + process.trims + 1


def test_without_a_limit_nothing_is_refused_and_memory_still_given_back():
    process = Process(None)
    process.resident += 64 << 20
    process.freed = 60 << 20
    for process.now in range(60):
        process.budget.tidy()
        assert not process.budget.exceeded
    assert process.trims == 1
    assert process.resident == 1004 << 20


def test_a_process_that_stays_large_is_trimmed_now_and_then_only():
    process = Process(None)
    process.resident += 64 << 20
    for process.now in range(600):
        process.budget.tidy()
    assert 10 <= process.trims <= 40


class Ring:
    def __init__(self):
        self.itself = self


@pytest.fixture
def ring():
    """Garbage that only the cycle collector finds, which does not run by itself."""
    gc.disable()
    try:
        yield weakref.ref(Ring())
    finally:
        gc.enable()


def test_what_is_given_back_includes_garbage_in_cycles(ring):
    assert ring() is not None
    budget = MemoryBudget(None, resident=count(1 << 30, 64 << 20).__next__)
    budget.tidy()
    assert ring() is not None, "not yet due"
    budget = MemoryBudget(
        None, resident=count(1 << 30, 64 << 20).__next__, clock=count(0, 60).__next__
    )
    budget.tidy()
    assert ring() is None


def test_a_request_that_finds_too_much_in_use_collects_no_garbage(ring):
    budget = MemoryBudget(1, resident=lambda: 2, clock=count(0, 60).__next__)
    assert budget.exceeded
    assert ring() is not None


def test_requests_that_are_refused_do_not_delay_the_collection_of_garbage():
    process = Process(900 << 20)
    process.resident += 64 << 20
    for tick in range(1, 400):
        process.now = tick / 10
        assert process.budget.exceeded
        if not tick % 20:
            process.budget.tidy()
    assert process.collections == 2


def test_nothing_waits_while_garbage_is_collected():
    collecting, finish = threading.Event(), threading.Event()

    def collect():
        collecting.set()
        assert finish.wait(60)

    budget = MemoryBudget(
        1 << 40,
        resident=count(1 << 30, 64 << 20).__next__,
        collect=collect,
        clock=count(0, 60).__next__,
    )
    tidying = threading.Thread(target=budget.tidy)
    tidying.start()
    assert collecting.wait(60)
    asking = threading.Thread(target=lambda: budget.exceeded)
    asking.start()
    asking.join(60)
    was_answered = not asking.is_alive()
    finish.set()
    tidying.join(60)
    asking.join(60)
    assert was_answered
