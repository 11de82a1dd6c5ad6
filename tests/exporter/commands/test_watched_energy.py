"""Energy of both from the page of the sidecar beside the server."""

from __future__ import annotations

import socket

import numpy as np
import pytest
from receiver import Asked, Receiver

from exporter.commands.watched_energy import WatchedEnergy
from exporter.features.comparison.confidence import WARM_UP_PAIRS

KEYS = (("m", "1"), ("m", "2"))


class Page(Receiver):
    """A sidecar's page that goes on at every look: 20 inferences of each version."""

    def __init__(self, joules: tuple[float, ...], status: int = 200) -> None:
        super().__init__(status)
        self._rng = np.random.default_rng(3)
        self._each = joules
        self._joules = [0.0 for _ in joules]
        self._inferences = 0

    def answer(self, asked: Asked) -> tuple[bytes, dict[str, str]]:  # noqa: ARG002 - any request is a look
        self._inferences += 20
        lines = []
        for place, each in enumerate(self._each):
            self._joules[place] += 20 * each * self._rng.lognormal(0, 0.1)
            labels = f'model="m",version="{place + 1}"'
            # Two boundaries, which add up.
            for boundary in ("gpu", "host"):
                told = f'{labels},boundary="{boundary}",source="x",method="busy_time"'
                lines.append(
                    f"triton_model_energy_joules_total{{{told}}} "
                    f"{self._joules[place] / 2}"
                )
            lines.append(f"triton_inferences_total{{{labels}}} {self._inferences}")
        return ("\n".join(lines) + "\n").encode(), {}


@pytest.fixture
def watch():
    started = []

    def start(*joules: float, status: int = 200) -> WatchedEnergy:
        page = Page(joules, status)
        energy = WatchedEnergy(f"{page.url}/metrics", 0.05)
        started.extend((energy, page))
        return energy

    yield start
    for one in started:
        one.close()


def test_the_ratio_of_joules_an_inference_is_held(watch):
    energy = watch(0.4, 0.3)
    for look in range(WARM_UP_PAIRS + 30):
        energy.look(KEYS)
        known = energy.interval is not None
        # The first look is what the windows are counted from.
        assert known is (look >= WARM_UP_PAIRS)
    found = energy.interval
    assert found.low < -0.25 < found.high
    assert found.high - found.low < 0.2


def test_too_few_windows_are_told(watch):
    energy = watch(0.4, 0.3)
    for _ in range(11):
        energy.look(KEYS)
    assert energy.interval is None
    assert energy.problem.startswith("10 of 50 windows so far")


def test_a_page_without_the_energy_of_both_is_told(watch):
    energy = watch(0.4)
    energy.look(KEYS)
    assert energy.problem.endswith("has no triton_model_energy_joules_total of m 2")


def test_a_page_that_is_none_is_told(watch, unused_address):
    refused = watch(0.4, 0.3, status=500)
    refused.look(KEYS)
    assert refused.problem.endswith("answered HTTP 500")
    nobody = WatchedEnergy(f"http://{unused_address}/metrics", 0.05)
    nobody.look(KEYS)
    nobody.close()
    assert nobody.problem.startswith(f"http://{unused_address}/metrics is no sidecar")


@pytest.fixture
def unused_address():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"
