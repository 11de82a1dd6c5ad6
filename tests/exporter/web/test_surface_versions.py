"""What a dead or hanging backend process shows as, by version of Triton."""

from __future__ import annotations

import asyncio
import time

import pytest
from fake_triton import FakeModel, FakeTriton
from surfaces import serving


def of(answer, metric):
    """By model; the metric has one series for each."""
    return {
        name: answer.values(metric, model=name)[0]
        for name in ("good", "bad")
        if answer.values(metric, model=name)
    }


@pytest.mark.parametrize(
    ("version", "ready", "server"),
    [("2.51.0", 1, 1), ("2.65.0", 0, 0), ("2.70.0", 0, 0)],
)
async def test_a_dead_stub_is_not_serving_on_any_version(version, ready, server):
    with FakeTriton([FakeModel("good"), FakeModel("bad")], version=version) as fake:
        async with serving(fake) as served:
            await served.until(
                lambda a: of(a, "triton_model_serving") == {"good": 1, "bad": 1}
            )
            fake.kill_stub("bad")
            await served.until(
                lambda a: (
                    of(a, "triton_model_serving") == {"good": 1, "bad": 0}
                    and of(a, "triton_model_ready") == {"good": 1, "bad": ready}
                    and a.values("triton_ready") == [server]
                )
            )


async def test_a_readiness_question_that_hangs_blocks_nothing_else():
    """On 2.70 each one holds up all control calls over gRPC for 5 s."""
    models = [FakeModel("good"), FakeModel("bad")]
    collectors = [
        {"kind": kind, "interval_seconds": 2} for kind in ("server", "statistics")
    ]
    with FakeTriton(models, version="2.70.0") as fake:
        async with serving(fake, collectors=collectors) as served:
            await served.until(
                lambda a: of(a, "triton_model_serving") == {"good": 1, "bad": 1}
            )
            before = fake.received("infer", model="good")
            fake.hang_is_ready("bad")
            ends = time.monotonic() + 8
            while time.monotonic() < ends:
                answer = await served.ask("/metrics")
                assert answer.values("triton_up") == [1]
                assert of(answer, "triton_model_serving") == {"good": 1, "bad": 1}
                await asyncio.sleep(0.2)
            await served.until(lambda a: of(a, "triton_model_ready").get("bad") == 0)
    # Twice a second by each protocol.
    assert fake.received("infer", model="good") - before >= 16
