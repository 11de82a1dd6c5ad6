"""Statistics that are read around a request: their time is not the model's."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import replace

import numpy as np
import pytest
from accesses import access_to
from fake_triton import UNAVAILABLE, FakeModel, FakeTriton, Hung, Slow
from waiting import patience

from exporter.access.inventory import Inventory
from exporter.features.synthetic.synthetic_settings import SyntheticSettings
from exporter.own_requests.asking import Asker
from exporter.own_requests.payload import make_payload
from exporter.runtime.probing import ProbeRunner
from exporter.triton.grpc import GrpcClient

TIMEOUT = 1.0
READ = 0.7


@contextlib.contextmanager
def behind_a_cache():
    """A model behind a response cache on a server whose statistics take their time."""
    with FakeTriton([FakeModel("m")]) as fake:
        access = access_to(GrpcClient(fake.grpc), clock=time.monotonic)
        spec = access.grpc.model_spec("m", "1", timeout_seconds=10)
        spec = replace(spec, response_cache=True)
        models = {spec.key: spec}
        access.board.publish(Inventory(up=True, ready=True, models=models))
        fake.on("statistics").reply(Slow(READ, "network"))
        yield fake, access, spec
        access.grpc.close()


async def watched(access, until):
    """What `serving` was until that."""
    settings = SyntheticSettings(
        interval_seconds=600, timeout_seconds=TIMEOUT, protocols=("grpc",)
    )
    rng = random.Random(1)  # noqa: S311 - spreads probes
    runner = ProbeRunner(
        "p",
        settings,
        settings.build(access),
        access.board,
        rng,
        time.monotonic,
        time.time,
    )
    task = asyncio.create_task(runner.run())
    seen, deadline = [], time.monotonic() + patience()
    while not until(outcomes(runner), seen) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
        seen += runner.serving(time.monotonic()).values()
    task.cancel()
    return outcomes(runner), seen


def outcomes(runner):
    return {
        s.labels[-1]
        for s in runner.samples(time.monotonic())
        if s.spec.name == "triton_probe_total" and s.value
    }


def test_an_answer_in_time_is_not_overdue_because_statistics_are_slow():
    with behind_a_cache() as (fake, access, _):
        fake.on("infer").reply(Slow(TIMEOUT / 4))
        found, seen = asyncio.run(watched(access, lambda found, seen: found and seen))
    assert found == {"ok"}
    assert False not in seen


def test_a_model_that_hangs_is_overdue_before_the_verdict():
    with behind_a_cache() as (fake, access, _):
        fake.on("infer").reply(Hung())
        found, seen = asyncio.run(watched(access, lambda _, seen: seen))
    assert seen[0] is False
    assert not found


def test_a_golden_answer_in_time_is_no_timeout_because_statistics_are_slow():
    with behind_a_cache() as (_, access, spec):
        rng = np.random.default_rng(0)
        payload = make_payload(spec, {}, rng)
        asker = Asker(access, spec, rng, timeout_seconds=TIMEOUT)
        answer = asker.ask(payload.inputs, payload.datatypes)
    assert answer.error is None
    assert asker.seconds == answer.seconds < READ


@pytest.mark.parametrize("readable", [0, 1])
def test_a_golden_answer_proves_nothing_if_statistics_cannot_be_read(readable):
    """Neither that the model ran, nor that it did not answer."""
    with behind_a_cache() as (fake, access, spec):
        fake.behave()
        if readable:
            fake.on("statistics").reply(times=readable)
        fake.on("statistics").reply(UNAVAILABLE)
        rng = np.random.default_rng(0)
        payload = make_payload(spec, {}, rng)
        answer = Asker(access, spec, rng).ask(payload.inputs, payload.datatypes)
    assert answer.error is None
    assert answer.cached
