"""A probe runner in virtual time, and a probe that answers when a test has it answer."""

from __future__ import annotations

import asyncio
import random
import selectors
import threading
from collections import defaultdict
from itertools import pairwise

from exporter.access.inventory import Inventory, InventoryBoard
from exporter.access.probe_base import ProbeSettings, Target, Verdict
from exporter.runtime.probing import ProbeRunner

WORKERS = 32
SLOW_WORKERS = 24
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
        self.outcomes = {}
        self.waited_for = []
        self.released = threading.Event()
        self.raises = {}
        self.declines = set()
        self.is_judge = False
        """True if only it can tell what a late answer means."""
        self.overlaps = []
        self._under_way = set()
        self._lock = threading.Lock()

    @property
    def under_way(self):
        """The names that are being asked now."""
        with self._lock:
            return {target.key[0] for target in self._under_way}

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
        if name in self.declines:
            return None
        return Verdict(self.outcomes.get(name, "ok"), 0.001, "tritonwatch-1")

    def judges_late(self, _):
        return self.is_judge

    def waited_seconds(self, target):
        return self.loop.now - self.starts[target.key[0]][-1]

    def note_verdict(self, target, verdict):
        pass

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
