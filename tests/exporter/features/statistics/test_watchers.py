"""Requests of other sidecars, as pages that are set say of them."""

from __future__ import annotations

import pytest
from clocks import Clock
from receiver import Receiver

from exporter.access.own_traffic import NOTHING, OwnCounts
from exporter.features.statistics.watchers import Watchers, WatcherSettings

KEY = ("m", "1")
OWN = 'triton_own_requests_total{model="m",outcome="%s",version="1"} %d\n'


class Page(Receiver):
    """A sidecar's /metrics that says what it is told to."""

    def asked(self, success, failure=0):
        self.body = (
            "# TYPE triton_own_requests_total counter\n"
            + OWN % ("success", success)
            + OWN % ("failure", failure)
            + 'triton_requests_total{model="m",outcome="success",version="1"} 999\n'
        ).encode()


@pytest.fixture
def page():
    with Page() as page:
        yield page


@pytest.fixture
def watchers(page):
    page.asked(100)
    watchers = Watchers([WatcherSettings(address=page.address)], 10.0)
    watchers.read()
    return watchers


def possible(watchers, requests=0):
    return watchers.joined(KEY, OwnCounts(), requests).possible.requests


def test_what_was_asked_before_the_first_look_is_not_counted(watchers):
    assert possible(watchers) == 0


def test_successes_and_failures_of_a_watcher_are_possible_requests(page, watchers):
    page.asked(103, 2)
    watchers.read()
    assert possible(watchers) == 5
    page.asked(104, 2)
    watchers.read()
    assert possible(watchers) == 6


def test_a_watcher_that_started_anew_counts_from_zero(page, watchers):
    page.asked(7)
    watchers.read()
    assert possible(watchers) == 7


@pytest.mark.parametrize("text", ["no page {{{", "triton_own_requests_total x\n", ""])
def test_a_page_that_says_nothing_loses_nothing(page, watchers, text):
    page.asked(103)
    watchers.read()
    page.body = text.encode()
    watchers.read()
    page.asked(104)
    watchers.read()
    assert possible(watchers) == 4


@pytest.mark.parametrize("reads", [1, 3])
def test_a_series_that_returns_with_its_old_total_is_no_rise(page, watchers, reads):
    page.body = b"tritonwatch_build_info 1\n"
    for _ in range(reads):
        watchers.read()
    page.asked(102)
    watchers.read()
    assert possible(watchers) == 2
    held = [watchers.joined(KEY, OwnCounts(), n).in_flight.requests for n in (10, 12)]
    assert held[-1] == 6


def test_one_outcome_that_returns_with_its_old_total_is_no_rise(page, watchers):
    page.body = (OWN % ("failure", 0)).encode()
    watchers.read()
    page.asked(102)
    watchers.read()
    assert possible(watchers) == 2


def test_a_total_that_the_first_page_did_not_have_is_not_counted(page):
    page.body = b"tritonwatch_build_info 1\n"
    watchers = Watchers([WatcherSettings(address=page.address)], 10.0)
    watchers.read()
    page.asked(500)
    watchers.read()
    assert possible(watchers) == 0
    page.asked(503)
    watchers.read()
    assert possible(watchers) == 3


@pytest.mark.parametrize(
    ("started", "expected"),
    [(1006.5, 100), (1005.0, 0), (1003.0, 0), (999, 0), (None, 0)],
)
def test_all_requests_of_a_watcher_that_started_after_the_base_are_counted(
    page, started, expected
):
    clock = Clock(1000.0)
    watchers = Watchers([WatcherSettings(address=page.address)], 10.0, wall_clock=clock)
    page.status = 503  # it does not listen yet
    clock.now = 1005.0
    watchers.read(is_base=True)
    clock.now = 1010.0
    page.status = 200
    page.asked(100)
    if started is not None:
        page.body += b"process_start_time_seconds %r\n" % started
    watchers.read()
    assert possible(watchers) == expected
    page.asked(103)
    watchers.read()
    assert possible(watchers) == expected + 3


def test_vanished_series_are_kept_up_to_a_bound(page, watchers, monkeypatch):
    monkeypatch.setattr("exporter.features.statistics.watchers._MOST_SERIES", 3)
    for other in "abcd":
        page.body = (OWN.replace('"m"', f'"{other}"') % ("success", 9)).encode()
        watchers.read()
    assert len(watchers._watchers[0]._latest) == 3


def test_a_watcher_without_an_answer_is_down_and_caught_up_with_later(page, watchers):
    assert [s.value for s in watchers.samples()] == [True]
    page.status = 503
    page.asked(110)
    watchers.read()
    assert [s.value for s in watchers.samples()] == [False]
    assert possible(watchers) == 0
    page.status = 200
    watchers.read()
    assert possible(watchers) == 10


def test_while_triton_counts_a_watchers_next_requests_are_held_back(page, watchers):
    page.asked(104)
    watchers.read()
    held = [
        watchers.joined(KEY, OwnCounts(), count).in_flight.requests
        for count in (10, 14, 14, 14, 14)
    ]
    assert held == [0, 12, 12, 12, 0]


def test_without_watchers_the_ledger_stays_as_it_is():
    watchers = Watchers([], 1.0)
    watchers.read()
    own = OwnCounts(ok=3)
    assert watchers.joined(KEY, own, 5) is own
    assert own.in_flight == NOTHING
