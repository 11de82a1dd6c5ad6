"""What faults of network, resources and peers make is undone, however far they came."""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING

import pytest
from cut_injections import Injector
from fault_cycles import kind_of, recorded, undone
from fault_needs import require_for
from monitoring import free_port
from sites import EmbeddedSite

from loadtests.chaos.faults.disk_full import DiskFull
from loadtests.chaos.faults.network import NetworkDelay, Partition
from loadtests.chaos.faults.peers import OtlpHang, TapStalled
from loadtests.chaos.faults.resources import CpuHog, CpuLimit, MemoryHog, MemoryLimit
from loadtests.chaos.network.proxy_client import fault_proxy
from loadtests.chaos.undoing.undo import SETTLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Generator

    from loadtests.chaos.faults import Fault

FAULTS = [
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
EXHAUSTIVE = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def injector() -> Generator[Injector]:
    with Injector() as running:
        yield running


@pytest.fixture(scope="module")
def site(loaded, tmp_path_factory) -> Generator[EmbeddedSite]:
    """All that these faults need, and nobody at the addresses of the peers."""
    with fault_proxy(grpc=loaded.grpc, http=loaded.http) as proxy:
        yield EmbeddedSite(
            loaded,
            proxy=proxy.control,
            trace_folder=tmp_path_factory.mktemp("traces"),
            peers={name: f"127.0.0.1:{free_port()}" for name in ("otlp", "tap")},
        )


def whole(fault: Fault, site: EmbeddedSite, injector: Injector) -> float:
    """How long it takes that nobody cuts."""
    record = recorded(fault, site)
    started = time.monotonic()
    assert injector.begin(fault, record).wait_until(None, 30)
    taken = time.monotonic() - started
    assert fault.missing(record) == []
    undone(fault, record)
    return taken


def cut(fault: Fault, site: EmbeddedSite, injector: Injector, after: float) -> None:
    record = recorded(fault, site)
    injecting = injector.begin(fault, record)
    time.sleep(after)
    injecting.send(signal.SIGKILL)
    type(fault).revert(record)
    # As undo does: what was started before the kill may do its work a moment later.
    time.sleep(SETTLE_SECONDS)
    undone(fault, record)


@pytest.mark.parametrize("fault", FAULTS, ids=kind_of)
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=EXHAUSTIVE)])
def test_an_injection_is_undone_wherever_it_is_cut(
    fault: Fault, times: int, site: EmbeddedSite, injector: Injector
) -> None:
    require_for(fault.model_dump())
    undone(fault, recorded(fault, site))
    taken = whole(fault, site, injector)
    rng = random.Random(f"{fault}")  # noqa: S311 - moments
    for number in range(times):
        # Evenly over the injection, and a little beyond its end.
        cut(fault, site, injector, 1.1 * taken * (number + rng.random()) / times)
    assert site.triton.running
