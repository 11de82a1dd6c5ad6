"""What a collector leaves is put back, once, in order, and in bounded time."""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
import time
import weakref
from itertools import count

import pytest
from structlog.testing import capture_logs
from waiting import patience

from exporter.access.collector_base import CollectorSettings
from exporter.app import Sidecar
from exporter.config.configuration import Config
from exporter.features.golden.golden_history import Watched
from exporter.features.golden.golden_probe import GoldenProbe
from exporter.features.slo.slo_collector import SloCollector
from exporter.features.spc.spc_collector import SpcCollector
from exporter.features.traces.traces_collector import TracesSettings
from exporter.runtime import lifetimes
from exporter.runtime.health import CollectorRunner
from exporter.system.memory import MemoryBudget


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


def start(recorder, *predecessors, **options):
    life = lifetimes.live(recorder.run, recorder, predecessors, **options)
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


async def test_nothing_of_a_predecessor_stays_once_its_successor_runs():
    events, gone = [], []
    task = start(Recorder(events, "0"))
    for number in range(1, 4):
        await asyncio.sleep(0)
        gone.append(weakref.ref(task))
        successor = Recorder(events, str(number))
        following = start(successor, task)
        await cancelled(task)
        await successor.running.wait()
        task = following
    del following
    gc.collect()
    assert [reference() for reference in gone] == [None] * 3
    await cancelled(task)


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
    async with asyncio.timeout(patience(10)):
        await successor.running.wait()
    assert events == ["first runs", "first closed", "second runs"]
    await cancelled(second)


async def test_a_close_that_hangs_is_given_up():
    hold = threading.Event()
    task = start(Recorder([], "a", hang=hold), close_seconds=0.05)
    await asyncio.sleep(0)
    async with asyncio.timeout(patience(10)):
        await cancelled(task)
    hold.set()


async def test_a_close_that_fails_harms_nobody():
    task = start(Recorder([], "a", error=OSError("no")))
    await asyncio.sleep(0)
    await cancelled(task)


async def test_a_collector_without_close_just_ends():
    events = []
    recorder = Recorder(events, "a")
    task = asyncio.create_task(lifetimes.live(recorder.run, object(), ()))
    await asyncio.sleep(0)
    await cancelled(task)
    assert events == ["a runs"]


class Working:
    """A collector whose run lasts until it is told."""

    def __init__(self, events, name="a"):
        self.events, self.name = events, name
        self.began, self.go_on = threading.Event(), threading.Event()

    def collect(self):
        self.began.set()
        self.go_on.wait(30)
        self.events.append(f"{self.name} collected")
        return ()

    def close(self):
        self.events.append(f"{self.name} closed")


def start_working(collector, **settings):
    runner = CollectorRunner(
        "c", CollectorSettings(**settings), collector, time.monotonic, time.time
    )
    return asyncio.create_task(lifetimes.live(runner.run, collector, ()))


async def test_a_collector_is_closed_after_the_run_in_flight_not_beside_it():
    events = []
    collector = Working(events)
    task = start_working(collector)
    assert await asyncio.to_thread(collector.began.wait, 20)
    asyncio.get_running_loop().call_later(0.2, collector.go_on.set)
    await cancelled(task)
    assert events == ["a collected", "a closed"]


async def test_a_run_that_is_late_already_is_not_waited_for():
    events = []
    collector = Working(events)
    task = start_working(collector, deadline_seconds=0.05)
    assert await asyncio.to_thread(collector.began.wait, 20)
    await asyncio.sleep(0.1)
    await cancelled(task)
    assert events == ["a closed"]
    collector.go_on.set()


async def test_a_run_that_hangs_holds_the_end_up_for_a_bounded_time():
    events = []
    collector = Working(events)
    task = start_working(collector, deadline_seconds=3600)
    assert await asyncio.to_thread(collector.began.wait, 20)
    async with asyncio.timeout(patience(20)):
        await cancelled(task)
    assert events == ["a closed"]
    collector.go_on.set()


async def test_reloads_in_a_row_wait_for_whoever_still_tidies_up(
    monkeypatch, unused_tcp_port
):
    events, hold = [], threading.Event()

    class Slow(Working):
        def close(self):
            if self.name == "1":
                hold.wait(30)
            super().close()

    collectors = []

    def build(settings, _):
        collectors.append(Slow(events, f"{settings.window_seconds:g}"))
        collectors[-1].go_on.set()
        return collectors[-1]

    monkeypatch.setattr(TracesSettings, "build", build)

    def config(number):
        traces = {"kind": "traces", "window_seconds": number}
        return Config.model_validate(
            {
                "target": {"grpc": f"localhost:{unused_tcp_port}"},
                "listen": {"tap": {"port": 0}},
                "collectors": [traces],
                "probes": [],
            }
        )

    sidecar = Sidecar(config(1))
    sidecar.start()
    assert await asyncio.to_thread(collectors[0].began.wait, 20)
    sidecar.reload(config(2))
    await asyncio.sleep(0.05)
    sidecar.reload(config(3))
    sidecar.reload(config(4))  # before the third could take its first step
    assert not await asyncio.to_thread(collectors[3].began.wait, 0.3)
    hold.set()
    assert await asyncio.to_thread(collectors[3].began.wait, 20)
    await sidecar.stop()
    assert events.index("1 closed") < events.index("4 collected")
    assert "2 collected" not in events


async def test_a_sidecar_that_could_start_no_thread_goes_on_when_it_can(
    monkeypatch, unused_tcp_port
):
    monkeypatch.setattr("exporter.app._WATCH_SECONDS", 0.05)
    interval = {"interval_seconds": 0.2, "deadline_seconds": 0.2}
    sidecar = Sidecar(
        Config.model_validate(
            {
                "target": {"grpc": f"localhost:{unused_tcp_port}"},
                "listen": {"tap": {"port": 0}},
                "collectors": [{"kind": "process", **interval}],
                "probes": [],
                "otlp": {"endpoint": "http://127.0.0.1:1", "interval_seconds": 0.2},
            }
        )
    )

    def refused(_):
        raise RuntimeError("can't start new thread")

    def tasks():
        return [sidecar._watching, *(r.task for r in sidecar._running.values())]

    with monkeypatch.context() as patch, capture_logs() as log:
        patch.setattr(threading.Thread, "start", refused)
        sidecar.start()
        await asyncio.sleep(0.5)
        assert not [task for task in tasks() if task.done()]
        (process,) = [r for r in sidecar.runners if r.meter.name == "process"]
        assert process.meter.statistics.success is False
    assert "can't start new thread" in str(log)
    deadline = asyncio.get_running_loop().time() + patience()
    while process.meter.statistics.success is not True:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)
    assert not [task for task in tasks() if task.done()]
    await sidecar.stop()


def judged(port, *names, **changes):
    """A configuration with an objective and a chart of each name."""
    return Config.model_validate(
        {
            "target": {"grpc": f"localhost:{port}"},
            "probes": [
                {
                    "kind": "golden",
                    "data": {"file": "set.npz"},
                    "interval_seconds": 600 + len(names),
                }
            ],
            "slos": [
                {"kind": "availability", "name": name, "objective_ratio": 0.99}
                | changes
                for name in names
            ],
            "collectors": [
                {
                    "kind": "spc",
                    "signals": [
                        {"name": name, "metric": "triton_up"} for name in names
                    ],
                }
            ],
        }
    )


async def test_a_reload_keeps_what_unchanged_entries_have_gathered(unused_tcp_port):
    def one(kind):
        return next(c for c in sidecar.collectors if isinstance(c, kind))

    def state():
        slo, spc = one(SloCollector), one(SpcCollector)
        return (
            {counter.objective.name: counter for counter, _ in slo.objectives},
            {watched.settings.name: watched for watched in spc.watched},
        )

    sidecar = Sidecar(judged(unused_tcp_port, "b"))
    sidecar.start()
    before = state()
    one(GoldenProbe).history.watched["m", "1"] = learnt = Watched("hash", 0.9, "1")
    await asyncio.sleep(0.05)
    sidecar.reload(judged(unused_tcp_port, "b", "c"))
    await asyncio.sleep(0.2)
    assert one(GoldenProbe).history.watched == {("m", "1"): learnt}
    for old, new in zip(before, state(), strict=True):
        assert set(new) == {"b", "c"}
        assert new["b"] is old["b"]
    sidecar.reload(judged(unused_tcp_port, "c", "b", models="m*"))
    slos, charts = zip(before, state(), strict=True)
    assert slos[1]["b"] is not slos[0]["b"]
    assert charts[1]["b"] is charts[0]["b"]
    sidecar.reload(judged(unused_tcp_port + 1, "c", "b"))
    assert all(
        new["b"] is not old["b"] for old, new in zip(before, state(), strict=True)
    )
    assert not one(GoldenProbe).history.watched
    await sidecar.stop()


async def test_garbage_is_collected_in_a_thread(unused_tcp_port):
    """A collection takes longer than an answer to a scrape."""
    threads: queue.Queue[int] = queue.Queue()
    sidecar = Sidecar(
        Config.model_validate(
            {
                "target": {"grpc": f"localhost:{unused_tcp_port}"},
                "collectors": [],
                "probes": [],
            }
        )
    )
    sidecar.admission.memory = MemoryBudget(
        None,
        resident=count(1 << 30, 64 << 20).__next__,
        collect=lambda: threads.put(threading.get_ident()),
        clock=count(0, 60).__next__,
    )
    sidecar.start()
    collected_in = await asyncio.to_thread(threads.get, timeout=60)
    await sidecar.stop()
    assert collected_in != threading.get_ident()
