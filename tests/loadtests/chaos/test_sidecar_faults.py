"""A sidecar that is killed beside a real Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fault_cycles import as_stranger, in_effect
from sidecars import SidecarProcess
from sites import EmbeddedSite

from loadtests.chaos.faults import FaultRefusedError
from loadtests.chaos.faults.process_faults import KillSidecar

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from playground import Playground


@pytest.fixture
def site(breakable: Playground, tmp_path: Path) -> Generator[EmbeddedSite]:
    config = {
        "target": {"grpc": breakable.grpc, "http": breakable.http},
        "listen": {"address": "127.0.0.1", "port": 0},
        "probes": [],
        "power": None,
    }
    sidecar = SidecarProcess(config, tmp_path / "sidecar")
    try:
        sidecar.wait_listening()
        yield EmbeddedSite(breakable.triton, beside=sidecar)
    finally:
        sidecar.close()


def test_a_killed_sidecar_answers_nobody(site) -> None:
    with in_effect(KillSidecar(), site):
        with pytest.raises(OSError, match="refused"):
            site.beside.get("/metrics")
        assert site.sidecar() is None


def test_a_sidecar_of_another_user_is_refused(site) -> None:
    with (
        as_stranger(),
        pytest.raises(FaultRefusedError, match="belongs to another user"),
    ):
        KillSidecar().require(site)
