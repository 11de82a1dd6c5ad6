"""The limit of memory, from control groups of both versions, and what is done near it."""

from __future__ import annotations

import gc
import weakref

import pytest

from exporter.system.memory_budget import MemoryBudget, give_back, group_limit

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
        self.now = self.trims = self.freed = 0
        self.resident = 1000 << 20
        self.reads = 0
        self.budget = MemoryBudget(
            limit, resident=self._read, trim=self._trim, clock=lambda: self.now
        )

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


def test_what_is_given_back_includes_garbage_in_cycles():
    gc.disable()
    try:
        gone = weakref.ref(Ring())
        assert gone() is not None
        give_back()
        assert gone() is None
    finally:
        gc.enable()
