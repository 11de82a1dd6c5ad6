"""Faults of processes, on a real Triton: what a client sees, and that undo is undo."""

from __future__ import annotations

import pytest
from fault_cycles import as_stranger, in_effect, recorded, undone
from sites import EmbeddedSite, bare_triton

from loadtests.chaos.faults import FaultRefusedError
from loadtests.chaos.faults.process_faults import (
    FreezeServer,
    FreezeStub,
    KillServer,
    KillStub,
)
from loadtests.chaos.primitives import model_control
from loadtests.chaos.primitives.backends import SHARED_MEMORY, Belongings

# The server.


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


# Backend processes.


def test_a_model_without_its_backend_process_is_ready_and_dead(site, client) -> None:
    server = site.server()
    with in_effect(KillStub(model="double"), site):
        assert client.says("/v2/health/ready")
        assert client.says("/v2/models/double/ready")
        assert client.double(timeout_seconds=2.5) not in {"right", "wrong"}
        assert client.sleepy() == "right"
    assert client.double() == "right"
    assert site.server() == server


def test_a_dead_model_may_be_left_dead(site, client) -> None:
    with in_effect(KillStub(model="double", repair=False), site):
        pass
    assert client.double(timeout_seconds=2.5) not in {"right", "wrong"}
    # What the documentation says by hand.
    model_control.unload(site.http, "double")
    model_control.load(site.http, "double")
    client.serves()


def test_a_frozen_backend_process_holds_up_its_own_model_only(site, client) -> None:
    fault = FreezeStub(model="double")
    with in_effect(fault, site) as record:
        assert client.sleepy() == "right"
        assert client.double(timeout_seconds=0.2).startswith("DeadlineError")
        # At once: the server aborts over a request that waits for about two seconds.
        FreezeStub.revert(record)
        client.serves()


# Refused.


def test_processes_of_others_are_refused(site) -> None:
    for fault in (KillServer(), FreezeServer(), FreezeStub(model="double")):
        with (
            as_stranger(),
            pytest.raises(FaultRefusedError, match="belongs to another user"),
        ):
            fault.require(site)


def test_a_model_without_a_backend_process_is_refused(site) -> None:
    for fault in (KillStub(model="nobody"), FreezeStub(model="nobody")):
        with pytest.raises(FaultRefusedError, match="no Python backend process"):
            fault.require(site)


def test_a_repair_that_the_server_would_not_allow_is_refused(triton) -> None:
    site = EmbeddedSite(triton)
    with pytest.raises(FaultRefusedError, match="does not allow models to be loaded"):
        KillStub(model="slow").require(site)
    KillStub(model="slow", repair=False).require(site)
