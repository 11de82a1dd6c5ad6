"""An injection that is killed at some moment is undone by whoever has its record.

At each point of it, and by each signal: `test_chaos_undo_after_kill.py`.
"""

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
from fault_needs import require_for
from monitoring import free_port
from sites import EmbeddedSite

from loadtests.chaos.faults import clock_jump
from loadtests.chaos.faults.clock_jump import ClockJump
from loadtests.chaos.faults.disk_full import DiskFull
from loadtests.chaos.faults.loading import UnloadModel
from loadtests.chaos.faults.models import LyingModel
from loadtests.chaos.faults.network import NetworkDelay, Partition
from loadtests.chaos.faults.peers import OtlpHang, TapStalled
from loadtests.chaos.faults.processes import FreezeServer
from loadtests.chaos.faults.requests import CorruptInputs
from loadtests.chaos.faults.resources import (
    CpuHog,
    CpuLimit,
    Descriptors,
    MemoryHog,
    MemoryLimit,
)
from loadtests.chaos.network.proxy_client import fault_proxy
from loadtests.chaos.primitives.processes import ProcessRef
from loadtests.chaos.undoing.undo import SETTLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from playground import Playground

    from loadtests.chaos.faults import Fault

PROCESSES_AND_MODELS = [
    ClockJump(),
    CorruptInputs(model="double"),
    Descriptors(),
    FreezeServer(),
    LyingModel(model="double"),
    UnloadModel(model="double"),
]
"""One of each way to break something that does not take the server down."""
REST = [
    Partition(mechanism="proxy"),
    CpuHog(busy_percent=1, processes=3),
    MemoryHog(available_percent=1),
    OtlpHang(),
    TapStalled(),
    Partition(mechanism="nft"),
    NetworkDelay(mechanism="proxy"),
    CpuLimit(),
    MemoryLimit(headroom_mebibytes=512),
    DiskFull(mechanism="mount"),
]
"""Of the network, of resources and of peers."""


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


@pytest.fixture(scope="module")
def loaded_site(loaded, tmp_path_factory) -> Generator[EmbeddedSite]:
    """All that the rest needs, and nobody at the addresses of the peers."""
    with fault_proxy(grpc=loaded.grpc, http=loaded.http) as proxy:
        yield EmbeddedSite(
            loaded,
            proxy=proxy.control,
            trace_folder=tmp_path_factory.mktemp("traces"),
            peers={name: f"127.0.0.1:{free_port()}" for name in ("otlp", "tap")},
        )


def seconds_of(fault: Fault, site: EmbeddedSite, injector: Injector) -> float:
    """How long a whole injection takes."""
    record = recorded(fault, site)
    started = time.monotonic()
    assert injector.begin(fault, record).wait_until(None, 30)
    taken = time.monotonic() - started
    assert fault.missing(record) == []
    undone(fault, record)
    return taken


def cut(fault: Fault, site: EmbeddedSite, injector: Injector, after: float) -> None:
    """Kill what injects after so many seconds; undo; nothing is left."""
    record = recorded(fault, site)
    injecting = injector.begin(fault, record)
    time.sleep(after)
    injecting.send(signal.SIGKILL)
    type(fault).revert(record)
    # As undo does: what the server or a child was told may come about a moment later.
    time.sleep(SETTLE_SECONDS)
    undone(fault, record)


def moments(fault: Fault, whole: float, times: int) -> list[float]:
    """Evenly over the injection, and a little beyond its end."""
    rng = random.Random(f"{fault}")  # noqa: S311 - moments
    return [1.1 * whole * (number + rng.random()) / times for number in range(times)]


@pytest.mark.parametrize("fault", PROCESSES_AND_MODELS, ids=kind_of)
def test_a_cut_injection_leaves_nothing(fault, site, injector) -> None:
    undone(fault, recorded(fault, site))
    whole = seconds_of(fault, site, injector)
    for after in moments(fault, whole, times=2):
        site.start_again()
        cut(fault, site, injector, after)
        site.start_again()
        with Client(site.http) as client:
            client.serves()


@pytest.mark.parametrize("fault", REST, ids=kind_of)
def test_a_cut_injection_beside_the_server_leaves_nothing(
    fault, loaded_site, injector
) -> None:
    require_for(fault.model_dump())
    undone(fault, recorded(fault, loaded_site))
    whole = seconds_of(fault, loaded_site, injector)
    cut(fault, loaded_site, injector, *moments(fault, whole, times=1))
    assert loaded_site.triton.running
