"""Probes while this process itself cannot run: stopped, or its interpreter is held."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time

from virtual_time import names

from exporter.access.inventory import Inventory, InventoryBoard
from exporter.access.probe_base import ProbeSettings, Target, Verdict
from exporter.runtime.probing import ProbeRunner, _undelayed

TIMEOUT = 1.0
HELD = 4 * TIMEOUT


class Probe:
    """Answers after `seconds`, and calls that a timeout as real probes do."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.asked = threading.Event()

    def targets(self, inventory):
        return [Target(key, "grpc") for key in inventory.models]

    def attempt(self, _):
        started = time.monotonic()
        self.asked.set()
        time.sleep(self.seconds)
        taken = time.monotonic() - started
        return Verdict("timeout" if taken > TIMEOUT else "ok", taken, "id")


def hold_interpreter(seconds):
    """Keep the interpreter for so long, as parsing a large document does."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


async def first_outcome(probe, disturb):
    board = InventoryBoard()
    board.publish(Inventory(up=True, models={(n, "1"): None for n in names(1)}))
    settings = ProbeSettings(
        name="p", interval_seconds=600, timeout_seconds=TIMEOUT, linger_seconds=60
    )
    runner = ProbeRunner(
        "p", settings, probe, board, _Evenly(), time.monotonic, time.time
    )
    seen_not_serving = False
    task = asyncio.create_task(runner.run())
    disturber = threading.Thread(target=lambda: (probe.asked.wait(), disturb()))
    disturber.start()
    try:
        while not (found := counted(runner)):
            seen_not_serving |= False in runner.serving(time.monotonic()).values()
            await asyncio.sleep(0.01)
    finally:
        task.cancel()
        disturber.join()
    return found, runner, seen_not_serving


class _Evenly:
    def uniform(self, low, high):
        return (low + high) / 2


def counted(runner):
    return {
        s.labels[-1]: s.value
        for s in runner.samples(time.monotonic())
        if s.spec.name == "triton_probe_total" and s.value
    }


def durations(runner):
    return sum(
        s.histogram.count
        for s in runner.samples(time.monotonic())
        if s.spec.name == "triton_probe_duration_seconds"
    )


def test_an_answer_that_this_process_could_not_read_in_time_is_late_not_a_timeout():
    found, runner, seen_not_serving = asyncio.run(
        first_outcome(Probe(TIMEOUT / 5), lambda: hold_interpreter(HELD))
    )
    assert found == {"late": 1}
    assert runner.serving(time.monotonic()) == {}
    assert not seen_not_serving
    assert durations(runner) == 0


class StallingProbe(Probe):
    """Finds a stream stalled that came in time, `over` seconds beyond its limit."""

    def __init__(self, over):
        super().__init__(TIMEOUT / 5)
        self.over = over

    def attempt(self, target):
        super().attempt(target)
        return Verdict("stalled", TIMEOUT / 5, "id", over_seconds=self.over)


def test_a_stall_that_this_process_caused_itself_is_late_and_another_is_one():
    held = TIMEOUT / 2
    found, runner, _ = asyncio.run(
        first_outcome(StallingProbe(held / 4), lambda: hold_interpreter(held))
    )
    assert found == {"late": 1}
    found, runner, _ = asyncio.run(first_outcome(StallingProbe(HELD), lambda: None))
    assert found == {"stalled": 1}
    assert list(runner.serving(time.monotonic()).values()) == [True]


def test_a_model_that_is_slow_itself_stays_a_timeout_though_this_process_was_delayed():
    found, runner, seen_not_serving = asyncio.run(
        first_outcome(Probe(4 * TIMEOUT), lambda: hold_interpreter(TIMEOUT / 2))
    )
    assert found == {"timeout": 1}
    assert seen_not_serving
    assert not any(runner.serving(time.monotonic()).values())


def test_a_time_that_is_mostly_our_own_delay_is_no_measurement():
    found, runner, _ = asyncio.run(
        first_outcome(Probe(0.1), lambda: hold_interpreter(TIMEOUT / 2))
    )
    assert found == {"ok": 1}
    assert durations(runner) == 0


def test_a_timeout_without_a_delay_of_this_process_is_one():
    # Its server gave it up early.
    verdict = Verdict("timeout", TIMEOUT, "id")
    assert _undelayed(verdict, 0.1, 0.0, TIMEOUT) is verdict
    assert _undelayed(verdict, 0.3, 0.1, TIMEOUT).outcome == "late"
