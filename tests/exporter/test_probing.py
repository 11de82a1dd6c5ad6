"""The schedule of probes, in virtual time: spread, jitter, rate, never two at once."""

from __future__ import annotations

import asyncio
import random
import selectors
import threading
from collections import defaultdict
from itertools import pairwise

import pytest

from exporter import catalogue
from exporter.inventory import Inventory, InventoryBoard
from exporter.probes.base import ProbeSettings, Target, Verdict
from exporter.probes.golden import GoldenSettings
from exporter.probing import ProbeRunner
from exporter.samples import Sample

WORKERS = 8
WALL = 1_700_000_000.0


class WarpedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while nobody works."""

    def __init__(self):
        self.now = 1000.0
        self.busy = lambda: False
        super().__init__(_WarpedSelector(self))

    def time(self):
        return self.now


class _WarpedSelector(selectors.DefaultSelector):
    def __init__(self, loop):
        super().__init__()
        self._loop = loop

    def select(self, timeout=None):
        events = super().select(0)
        if events or timeout == 0:
            return events
        if timeout is None or self._loop.busy():
            return super().select(0.01)
        self._loop.now += timeout
        return super().select(0)


class Probe:
    """Answers at once, or when released."""

    def __init__(self, loop, names):
        self.loop = loop
        self.names = names
        self.starts = defaultdict(list)
        self.order = []
        self.hung = {}
        self.slow = {}
        self.waited_for = []
        self.released = threading.Event()
        self.raises = {}
        self.declines = set()
        self.overlaps = []
        self._under_way = set()
        self._lock = threading.Lock()

    def targets(self, inventory):
        return [Target(key, "grpc") for key in inventory.models]

    def attempt(self, target):
        name = target.key[0]
        with self._lock:
            if target in self._under_way:
                self.overlaps.append(target)
            self._under_way.add(target)
            self.starts[name].append(self.loop.now)
            self.order.append(self.loop.now)
        try:
            if name in self.hung:
                with self._lock:
                    self.hung[name] += 1
                assert self.released.wait(30)
                with self._lock:
                    self.hung[name] -= 1
            if name in self.slow:
                self._wait(name, self.slow[name])
            if name in self.raises:
                raise self.raises[name]
        finally:
            with self._lock:
                self._under_way.discard(target)
        return None if name in self.declines else Verdict("ok", 0.001, "tritonwatch-1")

    def _wait(self, name, seconds):
        over = threading.Event()
        self.waited_for.append(over)
        self.loop.call_soon_threadsafe(self._begin, name, seconds, over)
        assert over.wait(30)

    def _begin(self, name, seconds, over):
        self.hung[f"slow {name}"] = 1
        self.loop.call_later(seconds, self._end, name, over)

    def _end(self, name, over):
        del self.hung[f"slow {name}"]
        over.set()


class Scene:
    """A runner, its probe and its inventory in a warped loop."""

    def __init__(self, loop, names, seed=0, **settings):
        self.loop = loop
        self.board = InventoryBoard()
        self.probe = Probe(loop, names)
        settings = {"interval_seconds": 10, "max_requests_per_second": 1000} | settings
        self.settings = ProbeSettings(name="p", **settings)
        self.runner = ProbeRunner(
            "p",
            self.settings,
            self.probe,
            self.board,
            random.Random(seed),  # noqa: S311 - jitter
            loop.time,
            lambda: WALL,
        )
        loop.busy = self._busy
        self.show(names)

    def _busy(self):
        # Who hangs is waited for in virtual time, all others in real time.
        hung = 0 if self.probe.released.is_set() else sum(self.probe.hung.values())
        return len(self.runner._in_flight) > hung

    def show(self, names):
        self.board.publish(Inventory(up=True, models={(n, "1"): None for n in names}))

    @property
    def starts(self):
        return self.probe.starts

    def gaps(self, name):
        return [b - a for a, b in pairwise(self.starts[name])]

    def metered(self, spec):
        found = [s for s in self.runner.samples(self.loop.now) if s.spec is spec]
        return found[0].value if found else None


def play(names, script, **settings):
    """Run `script(scene)` beside the runner; returns the scene at its end."""
    scene = None

    async def main():
        nonlocal scene
        scene = Scene(asyncio.get_running_loop(), names, **settings)
        task = asyncio.create_task(scene.runner.run())
        try:
            await script(scene)
        finally:
            for event in (scene.probe.released, *scene.probe.waited_for):
                event.set()
            task.cancel()
            await asyncio.wait({task})

    with asyncio.Runner(loop_factory=WarpedLoop) as runner:
        runner.run(main())
    assert scene.probe.overlaps == []
    return scene


def lasting(seconds):
    async def script(_):
        await asyncio.sleep(seconds)

    return script


def names(count):
    return [f"m{number:03}" for number in range(count)]


# The even course.


def test_every_target_is_probed_once_an_interval():
    scene = play(names(5), lasting(1000), jitter_ratio=0)
    for name in names(5):
        assert scene.gaps(name) == pytest.approx([10] * len(scene.gaps(name)))
        assert len(scene.gaps(name)) >= 98


def test_the_time_an_answer_takes_is_part_of_the_interval():
    async def script(scene):
        scene.probe.slow["m"] = 4
        await asyncio.sleep(100)

    scene = play(["m"], script, jitter_ratio=0)
    assert scene.gaps("m") == pytest.approx([10] * len(scene.gaps("m")))
    assert len(scene.gaps("m")) >= 8


def test_a_target_alone_is_probed_as_often_as_it_is_asked_for():
    async def script(scene):
        scene.probe.slow["m"] = 0.01
        await asyncio.sleep(10)

    often = {"interval_seconds": 0.02, "max_requests_per_second": 1000}
    scene = play(["m"], script, jitter_ratio=0, **often)
    assert scene.gaps("m") == pytest.approx([0.02] * len(scene.gaps("m")), abs=0.001)
    assert len(scene.gaps("m")) >= 490


def test_an_answer_that_takes_longer_than_the_interval_is_not_overtaken():
    async def script(scene):
        scene.probe.slow["m"] = 7
        await asyncio.sleep(70)

    scene = play(["m"], script, interval_seconds=3, jitter_ratio=0)
    assert scene.gaps("m") == pytest.approx([7] * len(scene.gaps("m")), abs=0.01)
    assert len(scene.gaps("m")) >= 8


def test_new_targets_begin_at_once_but_not_together():
    scene = play(names(100), lasting(9), jitter_ratio=0)
    first = sorted(starts[0] - 1000 for starts in scene.starts.values())
    assert len(first) == 100
    assert 0 <= first[0] < 0.5
    assert 4 < first[-1] <= 5.1
    busiest = max(sum(t <= u < t + 1 for u in first) for t in first)
    assert busiest < 40


def test_one_target_alone_does_not_wait():
    scene = play(["m"], lasting(1))
    assert scene.starts["m"][0] - 1000 <= 0.05


@pytest.mark.parametrize("jitter_ratio", [0.1, 0.5])
def test_jitter_moves_each_start_within_its_bounds(jitter_ratio):
    scene = play(["m"], lasting(3000), jitter_ratio=jitter_ratio)
    gaps = scene.gaps("m")
    least, most = 10 * (1 - jitter_ratio), 10 * (1 + jitter_ratio)
    assert least <= min(gaps) < least + 10 * jitter_ratio / 5
    assert most - 10 * jitter_ratio / 5 < max(gaps) <= most + 0.01
    assert sum(gaps) / len(gaps) == pytest.approx(10, rel=0.05)


def test_two_replicas_do_not_march_in_step():
    one, two = (play(["m"], lasting(500), seed=seed).starts["m"] for seed in (1, 2))
    assert len({round(a - b, 3) for a, b in zip(one, two, strict=False)}) > 40


# The rate.


@pytest.mark.parametrize("rate", [2, 10, 50])
def test_the_rate_is_never_exceeded_with_however_many_targets(rate):
    scene = play(names(200), lasting(60), max_requests_per_second=rate)
    gaps = [b - a for a, b in pairwise(scene.probe.order)]
    assert min(gaps) >= 1 / rate - 1e-9
    assert len(scene.probe.order) <= 60 * rate + 1
    assert len(scene.probe.order) >= min(60 * rate, 200 * 6) * 0.9


def test_the_interval_stretches_until_every_target_has_its_turn():
    scene = play(names(100), lasting(300), max_requests_per_second=2, jitter_ratio=0)
    assert scene.runner.interval_seconds == 50
    assert scene.metered(catalogue.PROBE_INTERVAL) == 50
    turns = {name: len(starts) for name, starts in scene.starts.items()}
    assert len(turns) == 100
    assert set(turns.values()) <= {5, 6, 7}


def test_the_interval_is_as_configured_while_the_rate_allows_it():
    scene = play(names(20), lasting(1), max_requests_per_second=2)
    assert scene.runner.interval_seconds == 10
    scene = play(names(21), lasting(1), max_requests_per_second=2)
    assert scene.runner.interval_seconds == 10.5


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


def test_a_hung_target_costs_the_others_nothing():
    async def script(scene):
        scene.probe.hung["m0"] = 0
        await asyncio.sleep(200)
        assert len(scene.starts["m0"]) == 1
        for name in ("m1", "m2"):
            assert scene.gaps(name) == pytest.approx([10] * len(scene.gaps(name)))
            assert len(scene.gaps(name)) >= 18

    play(["m0", "m1", "m2"], script, jitter_ratio=0)


def test_when_every_worker_hangs_it_is_said_and_ends_by_itself():
    hanging = names(WORKERS)

    async def script(scene):
        scene.probe.hung.update(dict.fromkeys(hanging, 0))
        await asyncio.sleep(100)
        assert sum(scene.probe.hung.values()) == WORKERS
        assert scene.metered(catalogue.COLLECTOR_SUCCESS) == 0
        failure = scene.runner.meter.statistics.failure
        assert failure.startswith("no verdict on m00")
        assert failure.endswith("1 by grpc within 8 s")
        before = {name: len(scene.starts[name]) for name in names(12)}
        await asyncio.sleep(50)
        assert {name: len(scene.starts[name]) for name in names(12)} == before
        scene.probe.released.set()
        scene.probe.hung.clear()
        await asyncio.sleep(50)
        assert scene.metered(catalogue.COLLECTOR_SUCCESS) == 1
        assert all(len(scene.starts[n]) >= before[n] + 3 for n in names(12))

    play(names(12), script)


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


# What is exposed.


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


def test_series_over_the_budget_are_counted_once_however_often_they_are_asked_for(
    monkeypatch,
):
    monkeypatch.setattr("exporter.probing._SERIES_LIMIT", 30)

    async def script(scene):
        await asyncio.sleep(5)
        first = scene.metered(catalogue.SERIES_DROPPED)
        for _ in range(5):
            scene.runner.samples(scene.loop.now)
        assert scene.runner.meter.statistics.series_dropped > 0
        assert scene.metered(catalogue.SERIES_DROPPED) == first > 0

    play(names(3), script)


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
        golden = GoldenSettings(metamorphic=["repeat"], interval_seconds=10)
        scene.runner.settings = golden
        assert scene.runner.serving(scene.loop.now) == {}

    play(["a"], script)
