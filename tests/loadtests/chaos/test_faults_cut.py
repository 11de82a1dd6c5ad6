"""An injection that is killed at some moment is undone by whoever has its record."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from cut_injections import Injector
from fault_cycles import Client, kind_of, recorded, undone
from sites import EmbeddedSite

from loadtests.chaos.faults import clock_jump
from loadtests.chaos.faults.clock_jump import ClockJump
from loadtests.chaos.faults.loading import ResponseCache, UnloadModel
from loadtests.chaos.faults.models import LyingModel
from loadtests.chaos.faults.processes import (
    FreezeServer,
    FreezeStub,
    KillServer,
    KillStub,
    RestartLoop,
)
from loadtests.chaos.faults.requests import CorruptInputs, OversizedInputs
from loadtests.chaos.faults.resources import Descriptors
from loadtests.chaos.primitives.processes import ProcessRef
from loadtests.chaos.undoing.undo import SETTLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from playground import Playground

    from loadtests.chaos.faults import Fault

QUICK = [
    ClockJump(),
    CorruptInputs(model="double"),
    Descriptors(),
    FreezeServer(),
    LyingModel(model="double"),
    UnloadModel(model="double"),
]
"""One of each way to break something that does not take the server down."""
OTHERS = [
    FreezeStub(model="double"),
    KillServer(),
    KillStub(model="double"),
    OversizedInputs(model="double", megabytes=2),
    ResponseCache(model="double"),
    RestartLoop(up_seconds=0.0),
    UnloadModel(model="double", every_seconds=0.1),
]


@dataclass
class WithSleeper(EmbeddedSite):
    """A Triton, and any process in its sidecar's place."""

    sleeper: int = 0

    def sidecar(self) -> ProcessRef | None:
        return ProcessRef.of(self.sleeper)


@pytest.fixture(scope="module")
def injector() -> Generator[Injector]:
    with Injector() as running:
        yield running


@pytest.fixture
def site(breakable: Playground, tmp_path: Path) -> Generator[EmbeddedSite]:
    sleep = [
        sys.executable,
        "-c",
        "import threading; print(flush=True); threading.Event().wait(600)",
    ]
    environment = {**os.environ, **clock_jump.environment(tmp_path / "clock")}
    with subprocess.Popen(sleep, env=environment, stdout=subprocess.PIPE) as process:
        # Before it runs, its libraries are not in memory.
        process.stdout.readline()
        yield WithSleeper(breakable.triton, sleeper=process.pid)
        process.kill()


def cut(fault: Fault, site: EmbeddedSite, injector: Injector, after: float) -> None:
    """Kill what injects after so many seconds; undo; all is as before."""
    record = recorded(fault, site)
    injecting = injector.begin(fault, record)
    time.sleep(after)
    injecting.send(signal.SIGKILL)
    type(fault).revert(record)
    # As undo does: what the server or a child was told may come about a moment later.
    time.sleep(SETTLE_SECONDS)
    undone(fault, record)
    site.start_again()
    with Client(site.http) as client:
        client.serves()


def seconds_of(fault: Fault, site: EmbeddedSite, injector: Injector) -> float:
    """How long a whole injection takes."""
    record = recorded(fault, site)
    started = time.monotonic()
    assert injector.begin(fault, record).wait_until(None, 30)
    taken = time.monotonic() - started
    assert fault.missing(record) == []
    undone(fault, record)
    site.start_again()
    return taken


def cut_often(fault: Fault, site: EmbeddedSite, injector: Injector, times: int) -> None:
    whole = seconds_of(fault, site, injector)
    rng = random.Random(kind_of(fault))  # noqa: S311 - moments
    for number in range(times):
        # Evenly over the injection, and a little beyond its end.
        cut(fault, site, injector, 1.1 * whole * (number + rng.random()) / times)


@pytest.mark.parametrize("fault", QUICK, ids=kind_of)
def test_a_cut_injection_leaves_nothing(fault, site, injector) -> None:
    undone(fault, recorded(fault, site))
    cut_often(fault, site, injector, 2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", [*QUICK, *OTHERS], ids=kind_of)
def test_an_injection_cut_at_twenty_moments_leaves_nothing(
    fault, site, injector
) -> None:
    undone(fault, recorded(fault, site))
    cut_often(fault, site, injector, 20)
