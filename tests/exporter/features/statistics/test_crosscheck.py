"""Triton's metrics page against its statistics API, and what is no disagreement."""

from __future__ import annotations

import pytest
from accesses import access_to, board_of
from fake_triton import Body, FakeModel, FakeTriton, Garbage, Hung, Status
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from exporter import catalogue
from exporter.features.statistics.server_page import CrossCheck, Page
from exporter.features.statistics.statistics_settings import StatisticsSettings
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient
from exporter.triton.protocol_types import Duration, ModelStatistics
from exporter.triton.upstream import CROSS_CHECKED

KEY = ("m", "1")
COUNTERS = {"success", "failure", "inferences", "executions"}


def statistics(count):
    return {
        KEY: ModelStatistics(
            *KEY,
            inference_count=count,
            execution_count=count,
            success=Duration(count, 0),
            fail=Duration(count, 0),
        )
    }


def page_of(successes):
    return Page({} if successes is None else {(KEY, "success"): successes}, {})


class Looks:
    """A cross-check and what it says of one counter, look by look."""

    def __init__(self):
        self.check = CrossCheck(None, 1.0)

    def __call__(self, low, page, high=None):
        samples = list(
            self.check.compare(
                statistics(low),
                page_of(page),
                statistics(low if high is None else high),
            )
        )
        assert all(s.spec is catalogue.STATISTICS_DISAGREEMENT for s in samples)
        assert all(s.labels == (*KEY, "success") for s in samples)
        return [s.value for s in samples]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_a_page_that_counts_the_same_never_disagrees(rises):
    look, count = Looks(), 0
    for before, after in rises:
        low, page, high = count, count + before, count + before + after
        assert look(low, page, high) == [0]
        count = high


def test_a_page_that_is_constant_counts_half_or_runs_ahead_disagrees():
    for count, page, disagreement in (
        (10, 0, 1),
        (1000, 0, 1),
        (100, 50, 0.5),
        (10, 15, 0.5),
    ):
        look = Looks()
        assert look(0, 0) == [0]
        assert look(count, page) == [disagreement]


def test_a_difference_from_before_is_none():
    # A reload sets the statistics to 0 while the page goes on.
    look = Looks()
    assert look(3, 1000) == [0]
    assert look(13, 1010) == [0]
    assert look(23, 1010) == [0.5]


@pytest.mark.parametrize(("low", "page"), [(0, 60), (60, 0), (0, 0)])
def test_when_either_starts_over_the_comparison_does_too(low, page):
    look = Looks()
    look(50, 50)
    assert look(low, page) == [0]
    assert look(low + 10, page + 10) == [0]


def test_a_reload_between_the_two_looks_is_not_judged():
    look = Looks()
    look(50, 50)
    assert look(50, 50, 2) == []


def test_a_page_that_could_not_be_read_once_changes_nothing():
    look = Looks()
    look(0, 0)
    assert look(10, None) == []
    assert look(20, 0) == [1]


def test_a_model_that_is_in_one_of_them_only_is_not_judged():
    check = CrossCheck(None, 1.0)
    page = Page({(("other", "1"), "success"): 5.0}, {("other", "1"): 1.0})
    assert list(check.compare(statistics(1), page, statistics(1))) == []
    assert list(check.compare({}, page_of(1.0), statistics(1))) == []


# Reading the page.


@pytest.fixture
def fake():
    with FakeTriton([FakeModel("m")]) as server:
        yield server


def read(server, seconds=5.0):
    client = HttpClient(server.metrics)
    try:
        return CrossCheck(client, seconds).read()
    finally:
        client.close()


def test_the_four_counters_are_read(fake):
    fake.served("m", 6, rows=2, executions=3)
    fake.failed("m", 2, reason="BACKEND")
    fake.failed("m", 1, reason="REJECTED")
    assert read(fake).counters == {
        (KEY, "success"): 6,
        (KEY, "failure"): 3,
        (KEY, "inferences"): 12,
        (KEY, "executions"): 5,  # what failed inside the model was executed
    }
    assert {series.statistics_field for series in CROSS_CHECKED} == COUNTERS


def test_pending_requests_are_shown_of_models_that_are_watched(fake):
    fake.add_metrics(
        'nv_inference_pending_request_count{model="n",version="2"} 7\n'
        'nv_inference_pending_request_count{model="o",version="1"} NaN\n'
    )
    page = read(fake)
    assert page.pending == {KEY: 0, ("n", "2"): 7}
    watched = statistics(0)
    (shown,) = (
        sample
        for sample in CrossCheck(None, 1.0).compare(watched, page, watched)
        if sample.spec is catalogue.PENDING_REQUESTS
    )
    assert (shown.labels, shown.value) == (KEY, 0)


def test_a_page_and_statistics_of_one_server_agree(fake):
    client, metrics = GrpcClient(fake.grpc), HttpClient(fake.metrics)
    access = access_to(client, metrics=metrics, board=board_of(client))
    collector = StatisticsSettings().build(access)

    def look():
        return {
            s.labels[2]: s.value
            for s in collector.collect()
            if s.spec is catalogue.STATISTICS_DISAGREEMENT
        }

    assert look() == dict.fromkeys(COUNTERS, 0)
    fake.served("m", 7, rows=3)
    fake.failed("m", 2)
    assert look() == dict.fromkeys(COUNTERS, 0)
    fake.load("m")
    fake.served("m", 5)
    assert look() == dict.fromkeys(COUNTERS, 0)
    client.close()
    metrics.close()


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_what_is_no_number_is_not_read(fake, value):
    fake.served("m", 3)
    fake.add_metrics(f'nv_inference_count{{model="m",version="1"}} {value}\n')
    assert read(fake).counters[KEY, "inferences"] == 3


def test_series_without_a_model_are_none_of_ours(fake):
    fake.add_metrics("nv_inference_count 7\n")
    assert set(read(fake).counters) == {(KEY, counter) for counter in COUNTERS}


@pytest.mark.parametrize(
    "answer",
    [
        Garbage(),
        Hung(),
        Status("INTERNAL", 500, "no"),
        Body(b"\xff\xfe not text"),
        Body(b"<html>"),
        Body(b'nv_inference_count{model="m'),
        Body(b""),
    ],
    ids=str,
)
def test_no_page_is_no_disagreement_and_no_failure(fake, answer):
    fake.on("metrics").reply(answer)
    assert read(fake, 0.5) in (None, Page({}, {}))


def test_metrics_that_are_switched_off_are_no_failure(fake):
    fake.stop()
    assert read(fake) is None


def test_a_page_that_cannot_be_read_is_logged_once_until_it_can(fake):
    client = HttpClient(fake.metrics)
    check = CrossCheck(client, 0.5)
    with capture_logs() as logs:
        assert check.read()
        fake.on("metrics").reply(Status("INTERNAL", 500, "no"), times=2)
        assert [check.read() is None for _ in range(3)] == [True, True, False]
        fake.on("metrics").reply(Hung(), times=1)
        assert check.read() is None
    client.close()
    missing, again = "metrics_page_not_read", "metrics_page_read_again"
    assert [entry["event"] for entry in logs] == [missing, again, missing]
    assert logs[0]["address"] == fake.metrics
    assert "HTTP 500: no" in logs[0]["reason"]
