"""The hub between taps and those who look at data."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import structlog

from exporter.access.mirror_hub import Mirrored, MirrorHub


def a_request(model: str) -> Mirrored:
    return Mirrored("http", model, "", "id")


def test_each_reader_gets_the_requests_of_the_models_it_wants():
    hub = MirrorHub()
    of_a, of_all = [], []
    hub.subscribe(lambda model: model == "a", of_a.extend)
    hub.subscribe(lambda _: True, of_all.extend)
    hub.publish([a_request("a"), a_request("b")])
    assert [r.model for r in of_a] == ["a"]
    assert [r.model for r in of_all] == ["a", "b"]


def test_nobody_wants_what_nobody_subscribed_to():
    hub = MirrorHub()
    assert not hub.wanted("a")
    subscription = hub.subscribe(lambda model: model == "a", list)
    assert hub.wanted("a")
    assert not hub.wanted("b")
    subscription.close()
    subscription.close()
    assert not hub.wanted("a")


def test_a_reader_that_raises_costs_the_others_nothing_and_is_logged():
    hub = MirrorHub()
    got = []

    def broken(_):
        raise ValueError("no")

    hub.subscribe(lambda _: True, broken)
    hub.subscribe(lambda _: True, got.extend)
    with structlog.testing.capture_logs() as logs:
        hub.publish([a_request("a")])
    assert len(got) == 1
    assert [entry["event"] for entry in logs] == ["mirror_reader_failed"]


def test_a_reader_is_never_called_by_two_taps_at_once():
    hub = MirrorHub()
    inside, most, done = 0, 0, []

    def slow(batch):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        inside -= 1
        done.extend(batch)

    hub.subscribe(lambda _: True, slow)
    with ThreadPoolExecutor(8) as taps:
        taps.map(hub.publish, [[a_request("a")] for _ in range(8)])
    assert len(done) == 8
    assert most == 1
