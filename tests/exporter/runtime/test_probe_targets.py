"""Targets that come, go, hang and break: never two probes of one at once."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

import pytest
from virtual_time import SLOW_WORKERS, WORKERS, lasting, names, play

from exporter import catalogue

# Targets that come and go.


def test_a_new_target_is_found_while_others_are_waited_for():
    async def script(scene):
        await asyncio.sleep(30)
        scene.show(["m", "late"])
        await asyncio.sleep(1)
        assert len(scene.starts["late"]) == 1

    play(["m"], script, interval_seconds=1000)


def test_a_target_that_is_gone_is_not_probed_and_leaves_no_series():
    async def script(scene):
        await asyncio.sleep(25)
        assert scene.metered(catalogue.PROBE_SUCCESS) == 1
        scene.show([])
        await asyncio.sleep(0.5)
        probed = len(scene.starts["m"])
        assert scene.metered(catalogue.PROBE_SUCCESS) is None
        assert scene.metered(catalogue.PROBE_TOTAL) is None
        await asyncio.sleep(100)
        assert len(scene.starts["m"]) == probed

    play(["m"], script)


def test_a_target_that_comes_and_goes_is_not_probed_more_often():
    async def script(scene):
        for _ in range(100):
            scene.show([])
            await asyncio.sleep(0.5)
            scene.show(["m", "n"])
            await asyncio.sleep(0.5)
        await asyncio.sleep(1)
        for name in scene.starts:
            scene.starts[name].clear()
        await asyncio.sleep(200)
        assert 19 <= len(scene.starts["m"]) <= 21
        assert len(scene.runner._due) <= 2

    play(["m", "n"], script, jitter_ratio=0)


def test_never_two_at_once_on_one_target_even_when_it_goes_and_returns():
    async def script(scene):
        scene.probe.hung["m"] = 0
        await asyncio.sleep(1)
        for _ in range(20):
            scene.show([])
            await asyncio.sleep(0.5)
            scene.show(["m"])
            await asyncio.sleep(1)
        assert len(scene.starts["m"]) == 1
        scene.probe.released.set()
        del scene.probe.hung["m"]
        await asyncio.sleep(25)
        assert 2 <= len(scene.starts["m"]) <= 4

    play(["m"], script)


def test_one_that_returns_before_its_answer_is_not_probed_twice_as_often():
    async def script(scene):
        scene.probe.slow["m000"] = 1
        await asyncio.sleep(0.5)
        scene.show([])
        await asyncio.sleep(0.3)
        scene.show(names(100))
        await asyncio.sleep(10)
        scene.starts["m000"].clear()
        await asyncio.sleep(100)
        assert len(scene.starts["m000"]) <= 11

    for seed in range(5):
        play(["m000"], script, jitter_ratio=0, seed=seed)


def test_a_verdict_on_a_target_that_has_gone_is_dropped():
    async def script(scene):
        scene.probe.hung["m"] = 0
        await asyncio.sleep(1)
        scene.show([])
        await asyncio.sleep(1)
        scene.probe.released.set()
        await asyncio.sleep(1)
        assert scene.runner.results.statuses() == []

    play(["m"], script)


# Attempts that hang or break.


@pytest.mark.parametrize("judges_late", [False, True])
def test_when_every_worker_hangs_it_is_said_and_ends_by_itself(judges_late):
    hanging = names(WORKERS)

    async def script(scene):
        scene.probe.is_judge = judges_late
        scene.probe.hung.update(dict.fromkeys(hanging, 0))
        await asyncio.sleep(100)
        assert sum(scene.probe.hung.values()) == WORKERS
        assert scene.metered(catalogue.COLLECTOR_SUCCESS) == 0
        failure = scene.runner.meter.statistics.failure
        assert failure.startswith("no verdict on m")
        assert failure.endswith("1 by grpc within 8 s")
        before = {name: len(scene.starts[name]) for name in names(WORKERS)}
        await asyncio.sleep(50)
        # It is no answer for as long as it is waited for, whatever it may show later.
        serving = scene.runner.serving(scene.loop.now)
        assert serving == dict.fromkeys(((name, "1") for name in hanging), False)
        assert {n: len(scene.starts[n]) for n in names(WORKERS)} == before
        scene.probe.released.set()
        scene.probe.hung.clear()
        await asyncio.sleep(50)
        assert scene.metered(catalogue.COLLECTOR_SUCCESS) == 1
        assert all(len(scene.starts[n]) >= before[n] + 3 for n in names(WORKERS))

    play(names(WORKERS), script)


@pytest.mark.parametrize(("models", "hanging"), [(30, 28), (200, 190), (200, 1)])
def test_targets_that_time_out_do_not_delay_those_that_answer(models, hanging):
    every = names(models)
    slow, well = every[:hanging], every[hanging:]

    async def script(scene):
        scene.probe.slow.update(dict.fromkeys(slow, 3))
        scene.probe.outcomes.update(dict.fromkeys(slow, "timeout"))
        await asyncio.sleep(400)
        interval = scene.runner.interval_seconds
        for name in well:
            first, *_ = starts = scene.starts[name]
            assert first - 1000 <= 2 * interval
            assert len(starts) >= 400 / interval - 3
            assert max(scene.gaps(name)) <= 2 * interval
        for name in slow:
            assert len(scene.starts[name]) >= 5, name

    settings = {"timeout_seconds": 1, "linger_seconds": 2, "interval_seconds": 5}
    play(every, script, max_requests_per_second=10, **settings)


def test_targets_that_time_out_occupy_only_some_of_the_workers():
    slow, well = names(60)[:56], names(60)[56:]

    async def script(scene):
        scene.probe.slow.update(dict.fromkeys(slow, 15))
        scene.probe.outcomes.update(dict.fromkeys(slow, "timeout"))
        await asyncio.sleep(100)
        for _ in range(100):
            await asyncio.sleep(1)
            assert len(scene.probe.under_way & set(slow)) <= SLOW_WORKERS
        for name in well:
            late = [t for t in scene.starts[name] if t > 1100]
            assert max(b - a for a, b in pairwise(late)) <= 20

    play(names(60), script, timeout_seconds=5, linger_seconds=10)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("a bug"), SystemExit(3), StopIteration(), KeyboardInterrupt()],
)
def test_an_attempt_that_raises_is_metered_and_tried_again(error):
    async def script(scene):
        scene.probe.raises["m"] = error
        await asyncio.sleep(35)
        assert len(scene.starts["m"]) == 4
        assert scene.metered(catalogue.COLLECTOR_SUCCESS) == 0
        assert type(error).__name__ in scene.runner.meter.statistics.failure
        scene.probe.raises.clear()
        await asyncio.sleep(10)
        assert scene.metered(catalogue.COLLECTOR_SUCCESS) == 1

    play(["m"], script, jitter_ratio=0)


def test_targets_that_cannot_be_told_leave_the_old_ones():
    async def script(scene):
        await asyncio.sleep(1)
        scene.probe.targets = lambda _: 1 / 0
        scene.show(["other"])
        await asyncio.sleep(1)
        assert scene.metered(catalogue.COLLECTOR_SUCCESS) == 0
        await asyncio.sleep(30)
        assert len(scene.starts["m"]) == 4
        assert scene.metered(catalogue.COLLECTOR_SUCCESS) == 1

    play(["m"], script, jitter_ratio=0)


def test_nothing_is_probed_after_the_end():
    scene = play(["m"], lasting(100))
    for thread in threading.enumerate():
        if thread.name.startswith("probe-p"):
            thread.join(20)
            assert not thread.is_alive()
    assert 9 <= len(scene.starts["m"]) <= 12
