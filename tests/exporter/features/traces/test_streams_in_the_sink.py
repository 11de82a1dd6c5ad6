"""Streamed answers in the sink: first responses, gaps, and what is unknown."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from protobuf_pages import PROTOBUF, delimited
from trace_sinks import histograms, sink, trace, values

from exporter import catalogue
from exporter.access.work_board import KnownTokens
from exporter.features.traces.trace_sink import RequestLimits
from exporter.features.traces.traced_request import Responses
from exporter.output import exposition

STREAM = Responses(3, 0.5, (0.02, 0.04))
ONE = Responses(1, 0.5)


def count(target, spec):
    found = histograms(target, spec)
    return found["m", "1"].histogram.count if found else 0


def test_a_streamed_request_counts_once_and_each_of_its_gaps():
    target = sink(decoupled=["m"])
    target.add("otlp", [trace(1, responses=STREAM), trace(2, responses=ONE)], 0.0)
    first = histograms(target, catalogue.FIRST_RESPONSE)["m", "1"].histogram
    gaps = histograms(target, catalogue.RESPONSE_GAP)["m", "1"].histogram
    number = histograms(target, catalogue.RESPONSES)["m", "1"].histogram
    assert (first.count, first.sum) == (1, pytest.approx(0.5))
    assert (gaps.count, gaps.sum) == (2, pytest.approx(0.06))
    assert (number.count, number.sum) == (2, 4.0)
    assert count(target, catalogue.REQUEST_DURATION) == 2


def test_streams_are_native_histograms_in_protobuf():
    target = sink(decoupled=["m"], token_responses=["m"])
    target.add("otlp", [trace(1, responses=STREAM), trace(2, responses=ONE)], 0.0)
    body, _ = exposition.render(target.samples(0.0), accept=PROTOBUF)
    native = {
        family.name: family.metric[0].histogram
        for family in delimited(body)
        if family.metric[0].histogram.positive_span
    }
    found = {
        name: (one.sample_count, one.sample_sum, one.schema, sum(counts_of(one)))
        for name, one in native.items()
    }
    assert found["triton_request_first_response_seconds"] == (1, 0.5, 5, 1)
    gaps = found["triton_request_response_gap_seconds"]
    assert gaps == (2, pytest.approx(0.06), 5, 2)
    pace = found["triton_request_time_per_output_token_seconds"]
    assert pace == (1, pytest.approx(0.03), 5, 1)
    assert found["triton_request_responses"] == (2, 4.0, 5, 2)


def counts_of(histogram):
    """The counts of native buckets, which are sent as differences."""
    return itertools.accumulate(histogram.positive_delta)


def test_where_responses_are_tokens_each_request_has_one_time_per_token():
    none = trace(3, total_seconds=None)
    streams = [trace(1, responses=STREAM), trace(2, responses=ONE), none]
    tokens = sink(decoupled=["m"], token_responses=["m*"])
    tokens.add("otlp", streams, 0.0)
    times = histograms(tokens, catalogue.TIME_PER_TOKEN)["m", "1"].histogram
    assert (times.count, times.sum) == (1, pytest.approx(0.03))
    assert tokens.token_responses() == {("m", "1"): KnownTokens(3, 4)}
    other = sink(decoupled=["m"], token_responses=["n"])
    other.add("otlp", streams, 0.0)
    assert histograms(other, catalogue.TIME_PER_TOKEN) == {}
    assert other.token_responses() == {}


@pytest.mark.parametrize(
    ("limits", "met", "missed"),
    [
        # The single response is judged by the total alone.
        ({"total_seconds": 10}, 2, 2),
        ({"total_seconds": 10, "first_response_seconds": 0.49}, 1, 3),
        ({"first_response_seconds": 0.5}, 1, 2),
        ({"first_response_seconds": 0.49}, 0, 3),
        ({"mean_gap_seconds": 0.03}, 1, 2),
        ({"mean_gap_seconds": 0.0299}, 0, 3),
        ({"mean_gap_seconds": 0.03, "first_response_seconds": 0.4}, 0, 3),
        ({"mean_gap_seconds": 0.03, "total_seconds": 0.001}, 0, 4),
    ],
)
def test_a_request_is_good_that_meets_all_limits_at_once(limits, met, missed):
    target = sink(
        decoupled=["m"],
        limits={
            "chat": RequestLimits(models="m*", **limits),
            "others": RequestLimits(models="n", total_seconds=1),
        },
    )
    untold = [trace(3, child=True), trace(4, protocol="", total_seconds=None)]
    unanswered = [trace(5, responses=None), trace(6, total_seconds=None)]
    streams = [trace(1, responses=STREAM), trace(2, responses=ONE)]
    target.add("otlp", [*streams, *untold, *unanswered], 0.0)
    assert values(target, catalogue.REQUEST_GOODPUT) == {
        ("m", "1", "chat", "met"): met,
        ("m", "1", "chat", "missed"): missed,
    }


def test_limits_without_any_limit_are_refused():
    for given in ({}, {"first_response_seconds": None}):
        with pytest.raises(ValueError, match="found no limit"):
            RequestLimits(models="m", **given)


def test_a_unary_request_has_no_first_response():
    target = sink()
    target.add("otlp", [trace(1, responses=ONE)], 0.0)
    assert count(target, catalogue.REQUEST_DURATION) == 1
    for spec in (catalogue.FIRST_RESPONSE, catalogue.RESPONSE_GAP, catalogue.RESPONSES):
        assert histograms(target, spec) == {}


def test_several_responses_are_a_stream_whatever_is_known_of_the_model():
    target = sink()
    target.add("otlp", [trace(1, responses=STREAM)], 0.0)
    assert count(target, catalogue.FIRST_RESPONSE) == 1
    assert count(target, catalogue.RESPONSE_GAP) == 2


@pytest.mark.parametrize("changes", [{"child": True}, {"total_seconds": None}])
def test_how_long_a_decoupled_model_worked_is_not_known_without_its_answer(changes):
    target = sink(decoupled=["m"])
    target.add("otlp", [trace(1, **changes)], 0.0)
    phases = histograms(target, catalogue.REQUEST_PHASE_DURATION)
    assert {labels[2] for labels in phases} == {
        "network_in",
        "queue",
        "compute_input",
        "network_out",
    }


def streams(target, seconds, *, slots=30):
    """Requests with gaps of (requests, gaps) `seconds`, spread over the window."""
    for number, gaps in enumerate(seconds):
        responses = Responses(len(gaps) + 1, 0.1, tuple(map(float, gaps)))
        now = number * slots // len(seconds) * 10.0
        target.add("otlp", [trace(number, responses=responses)], now)
    return (slots - 1) * 10.0


def test_gaps_of_a_request_that_are_alike_tell_no_more_than_one():
    rng = np.random.default_rng(1)
    alike = np.repeat(rng.lognormal(-4, 0.5, (300, 1)), 100, axis=1)
    target = sink()
    now = streams(target, alike)
    worth = values(target, catalogue.RESPONSE_GAP_LATENCY_EFFECTIVE, now)
    assert count(target, catalogue.RESPONSE_GAP) == 30_000
    assert 50 < worth["m", "1", "0.5"] < 900
    shown = values(target, catalogue.RESPONSE_GAP_LATENCY, now)
    # 30,000 gaps would support it, 300 requests do not.
    assert ("m", "1", "0.5") in shown
    assert ("m", "1", "0.999") not in shown


def test_gaps_of_a_few_requests_support_no_quantile():
    target = sink()
    now = streams(target, np.full((3, 5000), 0.02))
    assert count(target, catalogue.RESPONSE_GAP) == 15_000
    assert values(target, catalogue.RESPONSE_GAP_LATENCY, now) == {}
    worth = values(target, catalogue.RESPONSE_GAP_LATENCY_EFFECTIVE, now)
    assert set(worth.values()) == {0.0}


def test_the_interval_of_dependent_gaps_holds_as_often_as_it_says():
    rng = np.random.default_rng(2)
    held = shown = 0
    for _ in range(100):
        # Half of the variance is the request's, half the gap's own; the median is 1.
        levels = rng.normal(0, 0.5, (120, 1)) + rng.normal(0, 0.5, (120, 20))
        target = sink()
        now = streams(target, np.exp(levels))
        bounds = values(target, catalogue.RESPONSE_GAP_LATENCY_CI, now)
        if ("m", "1", "0.5", "lower") in bounds:
            shown += 1
            held += (
                bounds["m", "1", "0.5", "lower"]
                <= 1.0
                <= bounds["m", "1", "0.5", "upper"]
            )
    assert shown == 100
    # 95 % of 100 are 95; fewer than 89 come by chance once in a hundred times.
    assert held >= 89
