"""Each exposed sample with the time at which its source was read."""

from __future__ import annotations

import time

from exporter import catalogue
from exporter.access.source_reads import with_read_times
from exporter.runtime.health import Meter
from exporter.samples import Sample


def requests(model: str) -> Sample:
    return Sample(catalogue.REQUESTS, 1, (model, "1", "success"))


def succeeded(at: float) -> Meter:
    meter = Meter("x", lambda: at, lambda: 1e9)
    meter.succeeded(0.1)
    return meter


def test_samples_have_the_time_of_their_own_collector() -> None:
    failed = Meter("y", time.monotonic, time.time)
    failed.failed(0.1, "no answer")
    exposed = [
        requests("a"),
        *succeeded(70.0).samples(),
        *Meter("new", time.monotonic, time.time).samples(),
        requests("b"),
        *failed.samples(),
        requests("c"),
        *succeeded(80.0).samples(),
        requests("live"),
    ]
    found = list(with_read_times(exposed, 5.0))
    assert len(found) == len(exposed)
    read = {s.labels[0]: at for s, at in found if s.spec is catalogue.REQUESTS}
    assert read == {"a": 70.0, "b": None, "c": 80.0, "live": 5.0}
    assert {at for s, at in found if s.spec is not catalogue.REQUESTS} == {5.0}


def test_a_partial_read_reads_gauges_and_may_leave_counters_as_they_were() -> None:
    now = [70.0]
    meter = Meter("x", lambda: now[0], lambda: 1e9)
    meter.succeeded(0.1)
    now[0] = 80.0
    meter.partial(0.1, "one of two logs is missing")
    exposed = [requests("a"), Sample(catalogue.READY, 1), *meter.samples()]
    read = {s.spec: at for s, at in with_read_times(exposed, 5.0)}
    assert (read[catalogue.REQUESTS], read[catalogue.READY]) == (70.0, 80.0)
