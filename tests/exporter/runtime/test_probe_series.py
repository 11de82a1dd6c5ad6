"""What a probe exposes, and for how long."""

from __future__ import annotations

import asyncio

from virtual_time import names, play

from exporter import catalogue
from exporter.features.golden.golden_settings import GoldenSettings
from exporter.samples import Sample


def test_a_verdict_speaks_for_two_intervals_and_the_wait():
    async def script(scene):
        await asyncio.sleep(1)
        now, fresh = scene.loop.now, scene.runner.fresh_seconds
        assert fresh == 2 * 10 * 1.1 + 1 + 2
        at = scene.runner.results.statuses()[0].at
        assert scene.runner.serving(now) == {("m", "1"): True}
        assert scene.runner.serving(at + fresh) == {("m", "1"): True}
        assert scene.runner.serving(at + fresh + 0.1) == {}

    play(["m"], script)


def test_series_over_the_budget_are_counted_each_minute_however_often_they_are_asked_for(
    monkeypatch,
):
    monkeypatch.setattr("exporter.runtime.probing._SERIES_LIMIT", 30)

    async def script(scene):
        await asyncio.sleep(100)
        first = scene.metered(catalogue.SERIES_DROPPED)
        for _ in range(5):
            scene.runner.samples(scene.loop.now)
        assert scene.metered(catalogue.SERIES_DROPPED) == first > 0
        await asyncio.sleep(60)
        second = scene.metered(catalogue.SERIES_DROPPED)
        assert scene.metered(catalogue.SERIES_DROPPED) == second > first

    play(names(3), script)


def test_a_probe_without_a_model_has_no_latest_success():
    async def script(scene):
        await asyncio.sleep(5)
        assert scene.metered(catalogue.COLLECTOR_TIMESTAMP) is not None
        scene.show([])
        await asyncio.sleep(5)
        found = {s.spec for s in scene.runner.samples(scene.loop.now)}
        assert catalogue.COLLECTOR_TIMESTAMP not in found
        assert catalogue.COLLECTOR_SUCCESS not in found

    play(["m"], script)


def test_a_probe_whose_targets_cannot_be_found_has_failed():
    async def script(scene):
        def broken(_inventory):
            raise ValueError("boom")

        scene.probe.targets = broken
        scene.show(names(2))
        await asyncio.sleep(5)
        assert scene.metered(catalogue.COLLECTOR_SUCCESS) == 0

    play([], script)


def test_a_probe_that_did_not_ask_counts_nothing_and_is_asked_again():
    begun = 0.0

    async def script(scene):
        nonlocal begun
        begun = scene.loop.now
        scene.probe.declines.add("a")
        await asyncio.sleep(45)
        scene.probe.declines.clear()
        await asyncio.sleep(12)

    scene = play(["a"], script, jitter_ratio=0)
    assert len(scene.starts["a"]) >= 5
    counted = [
        s.value
        for s in scene.runner.samples(scene.loop.now)
        if s.spec is catalogue.PROBE_TOTAL and s.labels[-1] == "ok"
    ]
    declined = sum(start < begun + 45 for start in scene.starts["a"])
    assert counted == [len(scene.starts["a"]) - declined]


def test_a_probe_that_knows_more_than_its_verdicts_tells_it_beside_them():
    async def script(scene):
        told = Sample(catalogue.GOLDEN_ROUNDS, 3, ("a", "1", "set"))
        scene.probe.samples = lambda: [told]
        await asyncio.sleep(12)
        assert told in scene.runner.samples(scene.loop.now)

    play(["a"], script)


def test_a_probe_of_answers_says_nothing_of_whether_a_model_serves():
    async def script(scene):
        await asyncio.sleep(12)
        assert scene.runner.serving(scene.loop.now) == {("a", "1"): True}
        golden = GoldenSettings(data={"file": "set.npz"}, interval_seconds=10)
        scene.runner.settings = golden
        assert scene.runner.serving(scene.loop.now) == {}

    play(["a"], script)


def test_a_late_answer_is_told_at_its_timeout_and_counted_when_it_is_known():
    def counted(scene):
        found = scene.runner.samples(scene.loop.now)
        return sum(s.value for s in found if s.spec is catalogue.PROBE_TOTAL)

    async def script(scene):
        await asyncio.sleep(1)
        assert scene.runner.serving(scene.loop.now) == {("m", "1"): True}
        before = counted(scene)
        scene.probe.slow["m"] = 2.5
        await asyncio.sleep(9.5)
        assert len(scene.starts["m"]) == 2
        assert scene.runner.serving(scene.loop.now) == {("m", "1"): True}
        await asyncio.sleep(0.9)
        assert scene.runner.serving(scene.loop.now) == {("m", "1"): False}
        assert counted(scene) == before
        await asyncio.sleep(2)
        assert counted(scene) == before + 1

    play(["m"], script, jitter_ratio=0)


def test_a_probe_of_several_requests_is_late_only_by_its_own_word():
    async def script(scene):
        golden = GoldenSettings(data={"file": "set.npz"}, interval_seconds=10)
        scene.runner.settings = golden
        scene.probe.slow["m"] = golden.timeout_seconds + 1.0
        await asyncio.sleep(golden.timeout_seconds + 0.5)
        assert scene.starts["m"]
        assert scene.runner.results.statuses() == []

    play(["m"], script)
