"""Connections fit the file descriptors; places and bytes are shared between addresses."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running_taps import HttpTap
from structlog.testing import capture_logs
from waiting import wait_until

from exporter import catalogue
from exporter.network.admission import (
    CONNECTIONS,
    OWN_DESCRIPTORS,
    Admission,
    CrowdedError,
    Held,
    Places,
    network_of,
)
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
    allowed = min(hard, 4_096)
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


VISITS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()))


@given(VISITS)
def test_when_all_places_are_taken_the_address_with_most_loses_one(
    visits,
):
    places, inside, closed = Places(3, Counter(), "crowded"), [], []
    full = 0
    for since, (peer, idle, leaves) in enumerate(visits):
        expected = None
        if len(inside) == 3:
            full += 1
            addresses = [visitor.address for visitor in inside]
            held = addresses.count
            fair = [v for v in inside if held(v.address) >= held(peer)]
            waiting = [v for v in fair if v.idle_since() is not None]
            candidates = waiting or [v for v in fair if held(v.address) > held(peer)]
            if not candidates:
                with pytest.raises(CrowdedError):
                    places.enter(peer, float(since))
                continue
            most = max(held(v.address) for v in candidates)
            expected = next(v for v in candidates if held(v.address) == most)
            inside.remove(expected)
        visitor = places.enter(peer, float(since))
        assert closed == ([expected] if expected else [])
        closed.clear()
        visitor.end = lambda visitor=visitor: closed.append(visitor)
        if not idle:
            visitor.idle_since = lambda: None
        inside.append(visitor)
        if leaves:
            inside.pop(0).leave()
        assert places.visitors == set(inside)
        assert places.held_by(peer) == sum(v.address == peer for v in inside)
        assert places._by_address.keys() == {v.address for v in inside}
    assert places.refused == ({"crowded": full} if full else {})


def test_one_body_may_take_all_and_several_of_one_address_what_they_leave_free():
    admission, empty = Admission(), 4_096
    entrance = admission.tap
    entrance.held_limit = 400_000

    def held(address, number):
        body = Held(entrance, address)
        body.add(number - empty)
        return body

    with pytest.raises(CrowdedError, match="too many bodies wait"):
        held("a", 400_001)
    whole = held("a", 200_000)
    whole.add(200_000)
    with pytest.raises(CrowdedError, match="too many bodies wait"):
        held("b", empty)
    whole.let_go()
    first = held("a", 100_000)
    with pytest.raises(CrowdedError, match="of this address"):
        held("a", 100_001)
    second = held("a", 50_000)
    with pytest.raises(CrowdedError, match="of this address"):
        second.add(50_001)
    second.add(50_000)
    bodies = [first, second, held("b", 200_000)]
    assert entrance.held == {"a": 200_000, "b": 200_000}
    for body in bodies * 2:
        body.let_go()
    assert not entrance.held
    exposed = {(s.spec, *s.labels): s.value for s in admission.samples()}
    assert {labels: value for labels, value in exposed.items() if value != 0} == {
        **{(catalogue.ADMISSION_LIMIT, name): n for name, n in CONNECTIONS.items()},
        (catalogue.ADMISSION_REFUSED, "tap", "bytes"): 4,
    }


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1%eth0", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("", ""),
    ],
)
def test_quotas_apply_to_an_ipv4_address_and_to_an_ipv6_network(peer, network):
    assert network_of(peer) == network
