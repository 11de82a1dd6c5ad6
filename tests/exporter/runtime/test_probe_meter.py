"""What verdicts add up to: counts, histograms, quantiles, and what is too old to say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter import catalogue
from exporter.access.probe_base import Target, Verdict
from exporter.catalogue.probe_outcomes import OUTCOMES
from exporter.runtime.health import within_budget
from exporter.runtime.probe_meter import ProbeMeter
from exporter.samples import HistogramSample

WALL = 1_700_000_000.0
GRPC = Target(("m", "1"), "grpc")
HTTP = Target(("m", "1"), "http")
OTHER = Target(("other", "2"), "grpc")
FRESH = 10.0


def meter(window_seconds=300.0):
    return ProbeMeter("p", window_seconds, lambda: WALL)


def ok(seconds=0.01, request_id="tritonwatch-1"):
    return Verdict("ok", seconds, request_id)


def samples_of(subject, spec, now=100.0, fresh=FRESH):
    return [s for s in subject.samples(now, fresh) if s.spec is spec]


def values_of(subject, spec, now=100.0, fresh=FRESH):
    return {s.labels: s.value for s in samples_of(subject, spec, now, fresh)}


def test_nothing_is_said_before_the_first_verdict():
    assert meter().samples(100, FRESH) == []
    assert meter().statuses() == []
    assert meter().serving(100, FRESH) == {}


def test_every_outcome_is_there_from_the_first_verdict_on():
    subject = meter()
    subject.record(GRPC, ok(), 100)
    counted = values_of(subject, catalogue.PROBE_TOTAL)
    assert counted == {
        ("m", "1", "grpc", "p", outcome): int(outcome == "ok") for outcome in OUTCOMES
    }


@given(st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=30))
def test_outcomes_are_counted_and_the_latest_one_speaks(outcomes):
    subject = meter()
    for outcome in outcomes:
        subject.record(GRPC, Verdict(outcome, detail="why"), 100)
    counted = values_of(subject, catalogue.PROBE_TOTAL)
    for outcome in OUTCOMES:
        assert counted["m", "1", "grpc", "p", outcome] == outcomes.count(outcome)
    # An attempt that was late shows nothing: the one before it counts.
    latest = next((o for o in reversed(outcomes) if o != "late"), None)
    success, serving = {
        None: (None, None),
        "ok": (1, True),
        "backlog": (None, True),
        "cached": (None, None),
        "unjudged": (None, None),
        "configuration": (None, None),
        # It answers, if slowly.
        "stalled": (0, True),
    }.get(latest, (0, False))
    key = ("m", "1", "grpc", "p")
    assert values_of(subject, catalogue.PROBE_SUCCESS).get(key) == success
    assert subject.serving(100, FRESH).get(("m", "1")) is serving
    for outcome in OUTCOMES:
        found = {("m", "1"): "why"} if outcome == latest else {}
        assert subject.latest(outcome, 100, FRESH) == found
        assert not subject.latest(outcome, 100 + FRESH + 1, FRESH)


@pytest.mark.parametrize("order", [(GRPC, HTTP), (HTTP, GRPC)])
def test_a_model_serves_while_every_protocol_goes_through(order):
    subject = meter()
    subject.record(order[0], ok(), 100)
    subject.record(order[1], Verdict("bad_output", 0.01), 100)
    subject.record(OTHER, ok(), 100)
    assert subject.serving(100, FRESH) == {("m", "1"): False, ("other", "2"): True}
    assert values_of(subject, catalogue.PROBE_SUCCESS) == {
        ("m", "1", order[0].protocol, "p"): True,
        ("m", "1", order[1].protocol, "p"): False,
        ("other", "2", "grpc", "p"): True,
    }
    subject.record(order[1], ok(), 101)
    assert subject.serving(101, FRESH)["m", "1"] is True


def test_an_old_verdict_says_nothing_of_now_but_stays_counted():
    subject = meter()
    for _ in range(100):
        subject.record(GRPC, ok(), 100)
    assert values_of(subject, catalogue.PROBE_SUCCESS, now=110)
    assert values_of(subject, catalogue.PROBE_LATENCY, now=110)
    assert not values_of(subject, catalogue.PROBE_SUCCESS, now=110.01)
    assert not values_of(subject, catalogue.PROBE_LATENCY, now=110.01)
    assert subject.serving(110, FRESH) == {("m", "1"): True}
    assert subject.serving(110.01, FRESH) == {}
    counted = values_of(subject, catalogue.PROBE_TOTAL, now=1e6)
    assert counted["m", "1", "grpc", "p", "ok"] == 100
    (timed,) = samples_of(subject, catalogue.PROBE_DURATION, now=1e6)
    assert timed.histogram.count == 100


# Durations.


def test_what_was_not_timed_is_in_no_histogram():
    subject = meter()
    for outcome in ("unavailable", "invalid", "model_error"):
        subject.record(GRPC, Verdict(outcome, None), 100)
    (timed,) = samples_of(subject, catalogue.PROBE_DURATION)
    assert timed.histogram.count == 0
    assert timed.exemplars == ()
    assert not values_of(subject, catalogue.PROBE_LATENCY)


def test_a_timeout_counts_with_the_time_waited():
    subject = meter()
    subject.record(GRPC, Verdict("timeout", 1.0, "tritonwatch-2"), 100)
    (timed,) = samples_of(subject, catalogue.PROBE_DURATION)
    assert isinstance(timed, HistogramSample)
    assert (timed.histogram.count, timed.histogram.sum) == (1, 1.0)
    # One that is repeated without a request speaks for now, and is no other timeout.
    subject.record(GRPC, Verdict("timeout", is_repeated=True), 110)
    counted = values_of(subject, catalogue.PROBE_TOTAL, now=110)
    assert counted["m", "1", "grpc", "p", "timeout"] == 1
    assert subject.serving(110 + FRESH, FRESH) == {("m", "1"): False}


def test_a_sample_handed_out_does_not_change_afterwards():
    subject = meter()
    subject.record(GRPC, ok(), 100)
    (before,) = samples_of(subject, catalogue.PROBE_DURATION)
    subject.record(GRPC, ok(), 100)
    assert before.histogram.count == 1


def test_each_bucket_keeps_its_latest_exemplar():
    subject = meter()
    for number, seconds in enumerate([0.003, 0.004, 0.005, 0.2, 99.0]):
        subject.record(GRPC, ok(seconds, f"tritonwatch-{number}"), 100)
    (timed,) = samples_of(subject, catalogue.PROBE_DURATION)
    found = {e.value: e.labels["request_id"] for e in timed.exemplars}
    assert found == {
        0.005: "tritonwatch-2",
        0.2: "tritonwatch-3",
        99.0: "tritonwatch-4",
    }
    assert {e.timestamp_seconds for e in timed.exemplars} == {WALL}


# Quantiles.


def quantiles(subject, now=100.0):
    found = values_of(subject, catalogue.PROBE_LATENCY, now)
    return {labels[-1]: value for labels, value in found.items()}


def test_a_quantile_is_absent_until_the_count_can_bound_it():
    subject, first = meter(), {}
    for count in range(1, 5001):
        subject.record(GRPC, ok(), 100)
        if count in {5, 6, 36, 100, 1000, 4000, 5000}:
            for q in quantiles(subject):
                first.setdefault(q, count)
    assert first["0.5"] == 6
    assert list(first) == ["0.5", "0.9", "0.95", "0.99", "0.999"]
    assert first["0.999"] >= 4000


def test_only_the_window_speaks():
    subject = meter(window_seconds=60)
    for _ in range(50):
        subject.record(GRPC, ok(1.0), 100)
    for _ in range(50):
        subject.record(GRPC, ok(0.001), 300)
    assert quantiles(subject, 300)["0.5"] == pytest.approx(0.001, rel=0.03)
    (timed,) = samples_of(subject, catalogue.PROBE_DURATION, now=300)
    assert timed.histogram.count == 100


# Forgetting.


def test_what_is_gone_is_forgotten_and_begins_anew():
    subject = meter()
    subject.record(GRPC, ok(), 100)
    subject.record(OTHER, ok(), 100)
    subject.keep({OTHER})
    assert [s.target for s in subject.statuses()] == [OTHER]
    subject.record(GRPC, ok(), 101)
    counted = values_of(subject, catalogue.PROBE_TOTAL, now=101)
    assert counted["m", "1", "grpc", "p", "ok"] == 1


def test_to_keep_what_was_never_probed_adds_nothing():
    subject = meter()
    subject.keep({GRPC, HTTP})
    assert subject.samples(100, FRESH) == []


def test_a_status_is_the_latest_verdict_and_when():
    subject = meter()
    subject.record(GRPC, ok(), 100)
    late = Verdict("bad_output", 0.5, "tritonwatch-9", "output 'Y' is all zeros")
    subject.record(GRPC, late, 105)
    (status,) = subject.statuses()
    assert (status.target, status.verdict, status.at) == (GRPC, late, 105)


def test_the_series_of_a_target_are_as_many_as_the_budget_counts():
    subject = meter()
    for _ in range(5000):
        subject.record(GRPC, ok(), 100)
    samples = subject.samples(100, FRESH)
    histogram = len(catalogue.LATENCY_BOUNDS) + 3
    others = len(OUTCOMES) + 1 + 5
    assert len(samples) - 1 == others
    assert within_budget(samples, others + histogram)[1] == 0
    assert within_budget(samples, others - 1 + histogram)[1] == 1


def test_streams_have_first_responses_and_gaps_and_others_have_no_such_series():
    subject = meter()
    subject.record(OTHER, ok(), 100)
    specs = (catalogue.PROBE_FIRST_RESPONSE, catalogue.PROBE_RESPONSE_GAP)
    assert [samples_of(subject, spec) for spec in specs] == [[], []]
    for gaps in ((0.1, 0.3), ()):
        verdict = Verdict("ok", 0.9, first_response_seconds=0.5, gap_seconds=gaps)
        subject.record(GRPC, verdict, 100)
    (first,), (gap,) = (samples_of(subject, spec) for spec in specs)
    assert first.labels == gap.labels == ("m", "1", "grpc", "p")
    assert (first.histogram.count, first.histogram.sum) == (2, 1.0)
    assert (gap.histogram.count, gap.histogram.sum) == (2, pytest.approx(0.4))
