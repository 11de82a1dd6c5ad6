"""Whatever a collector does costs its own samples only, and is said."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from clocks import Clock
from structlog.testing import capture_logs
from waiting import PATIENCE_SECONDS, patience

from exporter import catalogue, errors
from exporter.access.collector_base import CollectorSettings
from exporter.histograms.histogram import Histogram
from exporter.runtime.health import CollectorRunner, Meter, within_budget
from exporter.samples import BucketSample, HistogramSample, MetricSpec, Sample
from exporter.system.workers import Workers

WALL = 1_700_000_000.0
UP = Sample(catalogue.UP, 1)


class Collector:
    """Does what it is told next; counts its runs and those at the same time."""

    def __init__(self, *results):
        self.results = list(results)
        self.runs = 0
        self.at_once = 0
        self.most_at_once = 0
        self.release = threading.Event()

    def collect(self):
        self.runs += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
            if result == "hang":
                assert self.release.wait(30)
                return (Sample(catalogue.UP, 0),)
            if isinstance(result, BaseException):
                raise result
            return result
        finally:
            self.at_once -= 1


class Scene:
    """One runner whose runs are made one by one."""

    def __init__(self, *results, **settings):
        self.clock = Clock(100.0)
        self.collector = Collector(*results)
        self.settings = CollectorSettings(**{"interval_seconds": 5} | settings)
        self.runner = CollectorRunner(
            "c", self.settings, self.collector, self.clock, lambda: WALL
        )

    def run(self, times=1):
        async def main():
            workers = Workers(1, "test")
            try:
                for _ in range(times):
                    await self.runner._collect_once(workers)
            finally:
                workers.close()

        asyncio.run(main())

    def value(self, spec, after_seconds=0.0):
        found = [
            s.value
            for s in self.runner.samples(self.clock.now + after_seconds)
            if s.spec is spec
        ]
        assert len(found) <= 1
        return found[0] if found else None

    @property
    def failure(self):
        return self.runner.meter.statistics.failure


def test_nothing_is_said_of_a_collector_before_its_first_run_has_ended():
    scene = Scene((UP,))
    assert [s.spec for s in scene.runner.samples(100)] == [catalogue.SERIES_DROPPED]


def test_a_run_that_works_exposes_its_samples_and_how_it_went():
    scene = Scene((UP,))
    scene.run()
    assert scene.value(catalogue.UP) == 1
    assert scene.value(catalogue.COLLECTOR_SUCCESS) == 1
    assert scene.value(catalogue.COLLECTOR_TIMESTAMP) == WALL
    assert scene.value(catalogue.COLLECTOR_DURATION) == 0  # by the clock given
    assert scene.failure == ""


def test_samples_are_gone_after_two_intervals():
    scene = Scene((UP,))
    scene.run()
    assert scene.value(catalogue.UP, after_seconds=10) == 1
    assert scene.value(catalogue.UP, after_seconds=10.01) is None
    assert scene.value(catalogue.COLLECTOR_SUCCESS, after_seconds=10.01) == 1


def test_the_samples_of_the_last_run_that_worked_stay_until_they_are_old():
    scene = Scene((UP,), errors.UnavailableError("away"))
    scene.run()
    scene.clock.now += 5
    scene.run()
    assert scene.value(catalogue.UP) == 1
    assert scene.value(catalogue.COLLECTOR_SUCCESS) == 0
    assert scene.value(catalogue.COLLECTOR_TIMESTAMP) == WALL
    assert scene.value(catalogue.UP, after_seconds=5.01) is None


@pytest.mark.parametrize(
    "error",
    [
        errors.UnavailableError("no connection"),
        errors.DeadlineError("late"),
        errors.ProtocolError("garbage"),
        RuntimeError("a bug"),
        KeyError("x"),
        RecursionError(),
        StopIteration("an empty list"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
        MemoryError(),
    ],
)
def test_whatever_is_raised_is_a_failed_run_and_the_next_one_works(error):
    scene = Scene(error, (UP,))
    scene.run()
    assert scene.value(catalogue.COLLECTOR_SUCCESS) == 0
    assert scene.value(catalogue.COLLECTOR_TIMESTAMP) is None
    assert scene.value(catalogue.UP) is None
    # The message of our own errors needs no name.
    is_ours = isinstance(error, errors.SourceError)
    assert (type(error).__name__ in scene.failure) is not is_ours
    assert str(error) in scene.failure
    scene.run()
    assert scene.value(catalogue.COLLECTOR_SUCCESS) == 1
    assert scene.value(catalogue.UP) == 1
    assert scene.failure == ""


OTHER = MetricSpec("triton_made_up", "Not in the catalogue.")
SAME_NAME = MetricSpec("triton_up", "Another one of that name.")


@pytest.mark.parametrize(
    ("samples", "told"),
    [
        (None, "TypeError"),
        (7, "TypeError"),
        (("text",), "AttributeError"),
        ((Sample(OTHER, 1),), "'triton_made_up', which is not in the catalogue"),
        ((Sample(SAME_NAME, 1),), "'triton_up', which is not in the catalogue"),
        ((UP, Sample(catalogue.MODEL_READY, 1, ("m",))), "takes the labels"),
        ((UP, Sample(catalogue.UP, 1, ("m",))), "triton_up takes the labels ()"),
        ((UP, Sample(catalogue.MODEL_READY, 1, ("m", 1))), "found ('m', 1)"),
        ((UP, Sample(catalogue.UP, None)), "TypeError"),
        ((UP, Sample(catalogue.UP, "one")), "ValueError"),
    ],
)
def test_samples_that_would_break_the_page_are_a_failed_run(samples, told):
    scene = Scene((UP,), samples)
    scene.run(2)
    assert scene.value(catalogue.COLLECTOR_SUCCESS) == 0
    assert told in scene.failure
    assert scene.value(catalogue.UP) == 1  # of the run before


# Budget.


def test_series_over_the_limit_are_dropped_and_counted_over_all_runs():
    samples = tuple(Sample(catalogue.MODEL_READY, 1, (f"m{n}", "1")) for n in range(10))
    scene = Scene(samples, series_limit=4)
    for runs in (1, 2, 3):
        scene.run()
        kept = [s for s in scene.runner.samples(100) if s.spec is catalogue.MODEL_READY]
        assert [s.labels[0] for s in kept] == ["m0", "m1", "m2", "m3"]
        assert scene.value(catalogue.SERIES_DROPPED) == 6 * runs
        assert scene.value(catalogue.COLLECTOR_SUCCESS) == 1


def test_a_histogram_counts_with_every_line_it_has():
    lines = len(catalogue.BATCH_BOUNDS) + 3
    sample = BucketSample(catalogue.BATCH_SIZE, (0.0,) * 9, 0, 0, ("m", "1"))
    assert within_budget([sample, sample], lines) == ([sample], lines)
    assert within_budget([sample], lines - 1) == ([], lines)
    timed = HistogramSample(catalogue.PROBE_DURATION, Histogram(), ("m", "1", "x", "y"))
    assert within_budget([timed], 100)[1] == 0
    assert within_budget([timed], 10)[1] == len(catalogue.LATENCY_BOUNDS) + 3


# Hanging, on real short times.


async def until(condition, seconds=PATIENCE_SECONDS):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came about"
        await asyncio.sleep(0.01)


async def running(scene, script, **options):
    """Run `script(scene)` beside the runner, on the real clock."""
    scene.runner = CollectorRunner(
        "c", scene.settings, scene.collector, time.monotonic, lambda: WALL, **options
    )
    task = asyncio.create_task(scene.runner.run())
    try:
        await script(scene)
    finally:
        scene.collector.release.set()
        task.cancel()
        await asyncio.wait({task})
    return task


def now_value(scene, spec):
    samples = scene.runner.samples(time.monotonic())
    return next((s.value for s in samples if s.spec is spec), None)


async def test_a_collector_that_hangs_fails_at_its_deadline_and_recovers():
    scene = Scene((UP,), "hang", (UP,), interval_seconds=0.1, deadline_seconds=0.2)

    async def script(scene):
        await until(lambda: now_value(scene, catalogue.COLLECTOR_SUCCESS) == 0)
        assert scene.failure == "no result within 0.2 s"
        assert now_value(scene, catalogue.COLLECTOR_DURATION) == 0.2
        await until(lambda: now_value(scene, catalogue.UP) is None)
        await asyncio.sleep(0.3)
        assert scene.collector.runs == 2
        scene.collector.release.set()
        await until(lambda: now_value(scene, catalogue.COLLECTOR_SUCCESS) == 1)
        # What came too late is not what is shown.
        assert now_value(scene, catalogue.UP) == 1

    await running(scene, script)
    assert scene.collector.most_at_once == 1


async def test_a_collector_that_hangs_longer_than_our_own_request_delayed_it_fails():
    scene = Scene((UP,), "hang", interval_seconds=0.1, deadline_seconds=0.2)
    delayed = [True]

    async def script(scene):
        await until(lambda: now_value(scene, catalogue.COLLECTOR_SUCCESS) == 0)
        assert not delayed
        assert float(scene.failure.split()[3]) >= 0.4

    await running(scene, script, held_up=lambda _: bool(delayed and delayed.pop()))


async def test_runs_never_overlap_and_follow_each_other_at_the_interval():
    scene = Scene((UP,), interval_seconds=0.06)

    async def script(scene):
        started = time.monotonic()
        await until(lambda: scene.collector.runs >= 10)
        assert time.monotonic() - started >= 9 * 0.06 - 0.01

    await running(scene, script)
    assert scene.collector.most_at_once == 1


async def test_one_that_hangs_does_not_hold_the_others():
    hung, fine = Scene("hang", interval_seconds=0.1), Scene((UP,), interval_seconds=0.1)

    async def other(_):
        async def script(scene):
            await until(lambda: scene.collector.runs >= 3)

        await running(fine, script)

    await running(hung, other)
    assert hung.collector.runs == 1


async def test_the_end_does_not_wait_for_a_run_that_hangs():
    scene = Scene("hang", interval_seconds=0.1)

    async def script(scene):
        await until(lambda: scene.collector.runs == 1)
        scene.collector.release = threading.Event()  # nobody sets it

    task = await asyncio.wait_for(running(scene, script), patience(10))
    assert task.cancelled()


# The meter says things once.


def test_a_failure_is_logged_once_until_it_works_again():
    meter = Meter("c", lambda: 0.0, lambda: WALL)
    with capture_logs() as events:
        for _ in range(3):
            meter.failed(0.1, "away")
        for _ in range(3):
            meter.succeeded(0.1)
        meter.failed(0.1, "away again")
    assert [(e["event"], e["log_level"], e.get("reason")) for e in events] == [
        ("collector_failed", "warning", "away"),
        ("collector_recovered", "info", None),
        ("collector_failed", "warning", "away again"),
    ]


def test_a_failure_keeps_when_it_last_worked_and_what_was_dropped():
    meter = Meter("c", lambda: 0.0, lambda: WALL)
    meter.succeeded(0.1, dropped=3)
    meter.failed(0.2, "away")
    assert meter.statistics.last_success_timestamp_seconds == WALL
    assert meter.statistics.series_dropped == 3
    assert (meter.statistics.success, meter.statistics.failure) == (False, "away")


# Workers.


async def test_workers_hand_over_results_and_errors():
    workers = Workers(2, "test")
    assert await workers.submit(max, 1, 2) == 2
    with pytest.raises(ZeroDivisionError):
        await workers.submit(lambda: 1 / 0)
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        await workers.submit(lambda: (_ for _ in ()).throw(SystemExit(3)))
    workers.close()


async def test_where_no_thread_can_be_started_those_that_are_there_go_on(monkeypatch):
    def refused(_):
        raise RuntimeError("can't start new thread")

    workers, release = Workers(2, "test"), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError):
            workers.submit(max, 1, 2)
    first = workers.submit(release.wait, 20)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        second = workers.submit(max, 1, 2)
    release.set()
    assert await first
    assert await second == 2
    workers.close()
