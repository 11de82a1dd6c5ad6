"""Faults of processes, on a real Triton: what a client sees, and that undo is undo."""

from __future__ import annotations

import contextlib
import http.client
import resource
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fault_cycles import Client, as_stranger, in_effect, recorded, undone
from sites import EmbeddedSite, bare_triton
from waiting import wait_until

from exporter.errors import EmbeddedTritonError
from loadtests.chaos.faults import FaultRefusedError
from loadtests.chaos.faults.process_faults import (
    FreezeServer,
    FreezeStub,
    KillServer,
    KillStub,
    RestartLoop,
)
from loadtests.chaos.faults.resources import Descriptors
from loadtests.chaos.primitives import model_control
from loadtests.chaos.primitives.backends import SHARED_MEMORY, Belongings, listener

if TYPE_CHECKING:
    from collections.abc import Generator

    from exporter.triton.embedded import EmbeddedTriton


@contextlib.contextmanager
def kept_up(triton: EmbeddedTriton) -> Generator[list[int]]:
    """A deployment that starts its server whenever it is gone; the pids it had."""
    pids: list[int] = []
    over = threading.Event()

    def supervise() -> None:
        while not over.wait(0.05):
            if not triton.running:
                # Killed before it was ready.
                with contextlib.suppress(EmbeddedTritonError):
                    triton.start()
                pids.append(triton.pid)

    thread = threading.Thread(target=supervise)
    thread.start()
    try:
        yield pids
    finally:
        over.set()
        thread.join()


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


def test_a_crash_loop_kills_each_server_that_comes_up(site, client) -> None:
    with kept_up(site.triton) as pids:
        with in_effect(RestartLoop(up_seconds=0.1), site):
            wait_until(lambda: len(pids) >= 2, "two servers were started", 40)
            assert listener(site.http) is None or client.double() != "wrong"
        wait_until(lambda: site.triton.running, "a server is kept up")
        client.serves()
        last = site.triton.pid
        client.serves()
        assert site.triton.pid == last


@pytest.mark.slow
def test_a_loop_without_a_supervisor_kills_once(site, client) -> None:
    with in_effect(RestartLoop(), site):
        assert client.double().startswith("UnreachableError")
    site.start_again()
    client.serves()


def test_descriptors_run_out_for_new_connections_only(site, client) -> None:
    server = site.server()
    before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    with in_effect(Descriptors(), site):
        assert client.double() == "right"
        with Client(site.http) as other:
            assert other.double(timeout_seconds=0.5).startswith("DeadlineError")
    assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE) == before
    with Client(site.http) as other:
        other.serves()


def at_rest(process) -> None:
    """Wait until the descriptors of connections that have ended are free."""
    looks = [set()]

    def unchanged() -> bool:
        looks.append({path.name for path in Path(f"/proc/{process.pid}/fd").iterdir()})
        return len(looks) > 10 and all(look == looks[-1] for look in looks[-10:])

    wait_until(unchanged, "the server opens and closes nothing")


def test_spare_descriptors_are_counted_from_what_is_open(site, client) -> None:
    at_rest(site.server())
    with (
        in_effect(Descriptors(spare=2), site),
        contextlib.ExitStack() as connections,
    ):
        answered = 0
        for _ in range(4):
            connection = http.client.HTTPConnection(site.http, timeout=0.5)
            connections.callback(connection.close)
            with contextlib.suppress(TimeoutError):
                connection.request("GET", "/v2/health/live")
                answered += connection.getresponse().status == 200
        assert answered == 2


def test_a_limit_that_somebody_else_has_set_meanwhile_stays(site) -> None:
    server = site.server()
    soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    record = recorded(Descriptors(), site)
    Descriptors().inject(record)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft - 1, hard))
    undone(Descriptors(), record)
    assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE)[0] == soft - 1
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft, hard))


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
    model_control.unload(site.http, "double", wait=False)
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
    stubs = FreezeStub(model="double")
    for fault in (KillServer(), FreezeServer(), stubs, RestartLoop(), Descriptors()):
        with as_stranger(), pytest.raises(FaultRefusedError, match="another user's"):
            fault.require(site)


def test_a_model_without_a_backend_process_is_refused(site) -> None:
    for fault in (KillStub(model="nobody"), FreezeStub(model="nobody")):
        with pytest.raises(FaultRefusedError, match="no Python backend process"):
            fault.require(site)


def test_a_repair_that_the_server_would_not_allow_is_refused(triton) -> None:
    site = EmbeddedSite(triton)
    with pytest.raises(FaultRefusedError, match="does not let models be loaded"):
        KillStub(model="slow").require(site)
    KillStub(model="slow", repair=False).require(site)


def test_more_spare_descriptors_than_there_are_are_refused(site) -> None:
    soft, _ = resource.prlimit(site.server().pid, resource.RLIMIT_NOFILE)
    with pytest.raises(FaultRefusedError, match="spare fewer"):
        Descriptors(spare=min(soft, 100_000)).prepare(site)
