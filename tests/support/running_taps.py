"""Taps on real sockets, each in a thread of its own, and requests to them."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
from dataclasses import replace

from waiting import PATIENCE_SECONDS, patience, wait_until

from exporter.access.inventory import Inventory
from exporter.network.admission import Admission
from exporter.system.memory import MemoryBudget
from exporter.taps.mirroring.mirror_collector import MirrorSettings
from exporter.taps.tap import Tap
from exporter.triton.protocol_types import ModelSpec

REQUEST = "org.kubeflow.serving.inference.request"
PATH = "/v2/models/m/infer"
PATIENT_SECONDS = 10.0
"""How long these taps let a sender wait for what became of its body: production's 50 ms
are over before a busy machine has looked at it, and then it is told nothing was wrong."""


class Crowded:
    """An admission whose process has `resident` bytes of memory, and may have 100."""

    def __init__(self):
        self.resident, self.now = 0, 0.0
        self.admission = Admission(
            MemoryBudget(
                100,
                resident=lambda: self.resident,
                trim=lambda: None,
                clock=self._clock,
            )
        )

    def _clock(self):
        self.now += 1
        return self.now


def inventory(*names):
    return Inventory(models={(n, "1"): ModelSpec(n, "1", (), ()) for n in names})


class RunningTap:
    """A tap that listens on a free port of loopback until it is closed."""

    def __init__(self, tap):
        self.tap = tap
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(patience(10))

    def _run(self):
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self):
        self._stop = asyncio.Event()
        self.tap.follow("127.0.0.1", 0)
        self._ready.set()
        await self._stop.wait()
        await self.tap.stop()

    def close(self, within_seconds=PATIENCE_SECONDS):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(within_seconds)
        assert not self._thread.is_alive()

    def outcomes(self):
        return {s.labels: s.value for s in self.tap.samples()}

    def wait(self, holds):
        wait_until(holds, self.outcomes)


class HttpTap(RunningTap):
    """The tap for HTTP."""

    def __init__(self, routes, admission=None, **bounds):
        self.admission = admission or Admission()
        super().__init__(Tap(routes, self.admission.tap, **bounds))
        host, _, port = self.tap.address.rpartition(":")
        self.address = (host, int(port))

    def send(self, body, path, method="POST", **headers):
        """One request on a connection of its own; the answer and its body."""
        connection = http.client.HTTPConnection(*self.address, timeout=patience(10))
        with contextlib.closing(connection):
            names = {k.replace("_", "-"): v for k, v in headers.items()}
            # Refused on its declared length, it may not be let finish.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body, names)
            answer = connection.getresponse()
            return answer, answer.read()


def mirrored(access, **settings):
    """A mirror collector that takes everything, and what a reader got of it."""
    got = []
    access.mirror.subscribe(lambda model: model != "other", got.extend)
    rates = {"samples_per_second": 1e5, "max_samples_per_second": 1e5}
    return MirrorSettings(**{**rates, **settings}).build(access), got


class MirrorTap(HttpTap):
    """A mirror collector behind an HTTP tap, and one reader."""

    def __init__(self, access, *, patient=True, **settings):
        self.access = access
        self.collector, self.got = mirrored(access, **settings)
        super().__init__(self._patient_routes if patient else self.collector.routes)

    def _patient_routes(self):
        routes = self.collector.routes()
        return [replace(route, answer_seconds=PATIENT_SECONDS) for route in routes]

    def post(self, body, path=PATH, **headers):
        answer, text = self.send(body, path, **headers)
        return answer.status, answer.getheader("tritonwatch-outcome"), text

    def event(self, body, kind=REQUEST, service="m", **headers):
        return self.post(
            body,
            "/",
            ce_specversion="1.0",
            ce_type=kind,
            ce_id="event-1",
            ce_source="http://localhost:9081/",
            ce_inferenceservicename=service,
            **headers,
        )

    def samples(self):
        return {s.labels: s.value for s in self.collector.collect()}
