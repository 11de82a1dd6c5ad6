"""The number of connections fits the process's file descriptors, checked at the start."""

from __future__ import annotations

import contextlib
import resource
import socket

import pytest
from running_taps import HttpTap
from structlog.testing import capture_logs
from waiting import wait_until

from exporter.network.admission import CONNECTIONS, OWN_DESCRIPTORS, Admission
from exporter.taps.tap_route import TapAnswer, TapRoute

GRPC_DESCRIPTORS = 3
"""Of one connection to the gRPC tap: its own, and two of the relay."""
WANTED = 128 + 128 + 64 * GRPC_DESCRIPTORS + OWN_DESCRIPTORS
ACCEPTED = TapAnswer("accepted")
ROUTE = TapRoute(
    "/v1/traces", "otlp", 1 << 20, lambda _: ACCEPTED, busy_answer=ACCEPTED
)


def limits(admission):
    return admission.web.limit, admission.tap.limit, admission.grpc.limit


def started(descriptors):
    with capture_logs() as log:
        admission = Admission(descriptors=descriptors)
    return limits(admission), log


def test_with_enough_descriptors_nothing_is_said():
    assert started(WANTED) == (tuple(CONNECTIONS.values()), [])


@pytest.mark.parametrize("descriptors", [300, 400, 512, 700, WANTED - 1])
def test_with_fewer_all_listeners_together_leave_the_sidecar_its_own(descriptors):
    (web, tap, grpc), (line,) = started(descriptors)
    assert web + tap + GRPC_DESCRIPTORS * grpc <= descriptors - OWN_DESCRIPTORS
    assert web == tap == pytest.approx(2 * grpc, abs=1)
    assert (line["event"], line["log_level"]) == ("few_file_descriptors", "warning")
    assert (line["limit"], line["wanted"]) == (descriptors, WANTED)
    assert "LimitNOFILE" in line["remedy"]


def test_however_few_there_are_each_listener_takes_some_connections():
    assert started(0)[0] == (8, 4, 2)


@contextlib.contextmanager
def soft_limit(number):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        yield hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_soft_limit_is_raised_as_far_as_is_allowed():
    with soft_limit(600) as hard, capture_logs() as log:
        admission = Admission()
        raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = 4_096 if hard < 0 else min(hard, 4_096)
    assert raised == allowed
    assert limits(admission) == limits(Admission(descriptors=allowed))
    assert bool(log) == (allowed < WANTED)


def test_a_higher_soft_limit_stays_as_it_is():
    with soft_limit(4_200):
        Admission()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 4_200


def test_a_connection_that_finds_no_descriptor_is_counted_and_served_later():
    with contextlib.closing(HttpTap(lambda: [ROUTE])) as tap:
        refused = tap.admission.tap.refused
        assert tap.send(b"{}", "/v1/traces")[0].status == 200
        with socket.socket() as client:
            with soft_limit(0):
                # Blocking: with a limit of 0, poll() refuses to wait for a timeout.
                client.connect(tap.address)
                wait_until(lambda: refused["descriptors"] > 1)
            client.settimeout(60)
            # Ten times a second: what waits makes no loop.
            assert refused["descriptors"] < 100
            head = b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
            client.sendall(head)
            assert client.recv(100).startswith(b"HTTP/1.1 200 ")
