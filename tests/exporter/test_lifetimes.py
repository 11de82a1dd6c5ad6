"""What a collector leaves is put back, once, in order, and in bounded time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from exporter import lifetimes


class Recorder:
    """A collector that says when it was closed."""

    def __init__(self, events, name, *, hang=None, error=None):
        self.events, self.name, self.hang, self.error = events, name, hang, error
        self.running = asyncio.Event()

    async def run(self):
        self.events.append(f"{self.name} runs")
        self.running.set()
        await asyncio.Event().wait()

    def close(self):
        if self.hang is not None:
            self.hang.wait(20)
        if self.error is not None:
            raise self.error
        self.events.append(f"{self.name} closed")


def start(recorder, predecessor=None, **options):
    life = lifetimes.live(recorder.run, recorder, predecessor, **options)
    return asyncio.create_task(life)


async def cancelled(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_collector_is_closed_when_its_task_is_cancelled():
    events = []
    task = start(Recorder(events, "a"))
    await asyncio.sleep(0)
    await cancelled(task)
    assert events == ["a runs", "a closed"]


async def test_a_successor_begins_when_the_predecessor_has_tidied_up():
    events, hold = [], threading.Event()
    first = start(Recorder(events, "first", hang=hold))
    await asyncio.sleep(0)
    first.cancel()
    successor = Recorder(events, "second")
    second = start(successor, first)
    await asyncio.sleep(0.05)
    assert events == ["first runs"]
    hold.set()
    async with asyncio.timeout(10):
        await successor.running.wait()
    assert events == ["first runs", "first closed", "second runs"]
    await cancelled(second)


async def test_a_close_that_hangs_is_given_up():
    hold = threading.Event()
    task = start(Recorder([], "a", hang=hold), close_seconds=0.05)
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await cancelled(task)
    hold.set()


async def test_a_close_that_fails_harms_nobody():
    task = start(Recorder([], "a", error=OSError("no")))
    await asyncio.sleep(0)
    await cancelled(task)


async def test_a_collector_without_close_just_ends():
    events = []
    recorder = Recorder(events, "a")
    task = asyncio.create_task(lifetimes.live(recorder.run, object(), None))
    await asyncio.sleep(0)
    await cancelled(task)
    assert events == ["a runs"]
