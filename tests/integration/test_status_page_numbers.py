"""Numbers of the status page that only a browser computes, and its doubts about numbers."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pytest
from fake_triton import FakeModel, FakeTriton
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = pytest.mark.triton


def test_rates_neither_rise_nor_fall_with_the_moments_of_reading(
    settings, start_sidecar, opened
) -> None:
    per_second, seen = 100, []
    with FakeTriton([FakeModel("m")]) as fake, steady(fake, "m", per_second):
        every_five = {"kind": "statistics", "interval_seconds": 5}
        server = {"kind": "server", "interval_seconds": 0.5}
        config = settings(fake, collectors=[server, every_five])
        page = opened(start_sidecar(config).port)

        def known() -> bool:
            seen[:] = page.evaluate(
                "(rates.lines.get('m') ?? []).filter((value) => value !== null)"
            )
            return len(seen) >= 6

        wait_until(known, "rates of three reads")
    assert seen == pytest.approx([per_second] * len(seen), rel=0.3)


@contextlib.contextmanager
def steady(fake: FakeTriton, model: str, per_second: float) -> Generator[None]:
    """Let a model serve so many requests a second, however late this thread is."""
    ended = threading.Event()

    def serve() -> None:
        begun, served = time.monotonic(), 0
        while not ended.wait(0.02):
            due = int(per_second * (time.monotonic() - begun))
            if due > served:
                fake.served(model, due - served)
            served = due

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
