"""Faults of processes, on a real Triton: what a client sees, and that undo is undo."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from fault_cycles import in_effect, recorded, undone
from requirements import as_nobody
from sidecars import SidecarProcess
from sites import EmbeddedSite, bare_triton

from loadtests.chaos.faults.process_faults import (
    FreezeServer,
    FreezeStub,
    KillServer,
    KillSidecar,
    KillStub,
)
from loadtests.chaos.primitives.backends import SHARED_MEMORY, Belongings, Known, Stub
from loadtests.chaos.primitives.process_refs import ProcessRef, new_token
from loadtests.errors import FaultRefusedError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from playground import Playground

_NAME: Final = "triton_python_backend_stub"


def test_a_killed_server_refuses_connections_and_stays_away(site, client) -> None:
    with in_effect(KillServer(), site):
        assert client.double().startswith("UnreachableError")
    assert client.double().startswith("UnreachableError")
    site.start_again()
    client.serves()


def test_what_a_killed_server_leaves_is_cleared_away(triton_environment) -> None:
    with bare_triton(triton_environment) as site:
        server = site.server()
        assert server is not None
        before = Belongings.of(server)
        assert before.stubs
        assert all((SHARED_MEMORY / name).exists() for name in before.regions)
        with in_effect(KillServer(), site) as record:
            # Shared memory at the least: backend processes see their server's end.
            assert len(KillServer.residue(record)) >= len(before.regions)
        assert not any(stub.alive for stub in before.stubs)
        assert not any((SHARED_MEMORY / name).exists() for name in before.regions)


def test_undo_touches_nothing_of_a_server_that_lives(site, client) -> None:
    record = recorded(KillServer(), site)
    undone(KillServer(), record)
    assert all(stub.alive for stub in site.stubs())
    assert client.double() == "right"


def test_a_frozen_server_answers_nobody_until_it_thaws(site, client) -> None:
    with in_effect(FreezeServer(), site):
        assert client.double(timeout_seconds=0.3).startswith("DeadlineError")
        assert not any(stub.state not in {"T", "t"} for stub in site.stubs())
    client.serves()


def test_a_model_without_its_backend_process_is_ready_and_dead(site, client) -> None:
    server = site.server()
    with in_effect(KillStub(model="double"), site):
        assert client.says("/v2/health/ready")
        assert client.says("/v2/models/double/ready")
        assert client.double(timeout_seconds=2.5) not in {"right", "wrong"}
        assert client.sleepy() == "right"
    assert client.double() == "right"
    assert site.server() == server


def test_a_frozen_backend_process_holds_up_its_own_model_only(site, client) -> None:
    fault = FreezeStub(model="double")
    with in_effect(fault, site) as record:
        assert client.sleepy() == "right"
        assert client.double(timeout_seconds=0.2).startswith("DeadlineError")
        # At once: the server aborts over a request that waits for about two seconds.
        FreezeStub.revert(record)
        client.serves()


def test_processes_of_others_are_refused(site) -> None:
    for fault in (KillServer(), FreezeServer(), FreezeStub(model="double")):
        with (
            as_nobody(),
            pytest.raises(FaultRefusedError, match="belongs to another user"),
        ):
            fault.prepare(site)


def test_a_model_without_a_backend_process_is_refused(site) -> None:
    for fault in (KillStub(model="nobody"), FreezeStub(model="nobody")):
        with pytest.raises(FaultRefusedError, match="no Python backend process"):
            fault.prepare(site)


def test_a_repair_that_the_server_would_not_allow_is_refused(triton) -> None:
    site = EmbeddedSite(triton)
    with pytest.raises(FaultRefusedError, match="does not allow models to be loaded"):
        KillStub(model="slow").prepare(site)


@pytest.fixture
def watched(breakable: Playground, tmp_path: Path) -> Generator[EmbeddedSite]:
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


def test_a_killed_sidecar_answers_nobody(watched) -> None:
    with in_effect(KillSidecar(), watched):
        with pytest.raises(OSError, match="refused"):
            watched.beside.get("/metrics")
        assert watched.sidecar() is None


def test_a_sidecar_of_another_user_is_refused(watched) -> None:
    with (
        as_nobody(),
        pytest.raises(FaultRefusedError, match="belongs to another user"),
    ):
        KillSidecar().prepare(watched)


@pytest.fixture
def ended() -> ProcessRef:
    """A process that is gone."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        found = ProcessRef.of(process.pid)
    assert found is not None
    return found


@pytest.mark.parametrize("written", ["{}", "/{}"])
def test_a_region_is_cleared_away_as_its_server_wrote_it(
    ended: ProcessRef, written: str
) -> None:
    name = new_token()
    (SHARED_MEMORY / name).touch()
    left = Belongings(ended, Known("", ended.pid), (), (written.format(name),))
    assert left.left() == [f"shared memory {SHARED_MEMORY / name} is left"]
    left.sweep()
    assert left.left() == []
    assert not (SHARED_MEMORY / name).exists()


@pytest.mark.parametrize("up", [True, False])
def test_a_name_that_leads_out_of_shared_memory_is_not_followed(
    ended: ProcessRef, tmp_path: Path, *, up: bool
) -> None:
    innocent = tmp_path / "innocent"
    innocent.touch()
    name = os.path.relpath(innocent, SHARED_MEMORY) if up else str(innocent)
    names = (name, "", ".", "..", "/")
    hostile = Belongings(ended, Known("", ended.pid), (), names)
    assert hostile.left() == []
    hostile.sweep()
    assert innocent.exists()


def test_a_process_with_a_pid_of_many_digits_is_no_backend_process() -> None:
    command = [f"/b/{_NAME}", "-", "region", "1", "1", "1" * 5000, "/b"]
    with subprocess.Popen(
        command, executable=sys.executable, stdin=subprocess.PIPE
    ) as process:
        assert Stub.of(process.pid) is None
