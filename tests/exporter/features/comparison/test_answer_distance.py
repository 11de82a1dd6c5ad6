"""How far answers are apart, what pairs add up to, and what an interval says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.features.comparison.answer_pairs import Answered, Pairs, apart, predicted
from exporter.features.comparison.comparison_settings import (
    METRICS,
    MarginSettings,
    reference,
)
from exporter.features.comparison.confidence import Finding, Interval
from exporter.triton.protocol_types import InferReply, OutputTensor
from exporter.triton.tensors import encode


def output(values, datatype="FP32", name="y"):
    array = np.asarray(values)
    if datatype == "BYTES":
        array = array.astype(object)
    return OutputTensor(name, datatype, array.shape, encode(array, datatype))


def distance(a, b, datatype="FP32", rule="auto"):
    return apart([output(a, datatype)], [output(b, datatype)], rule, 1e-3)


# Distance and agreement.


@given(
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=8),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=8),
)
def test_the_distance_is_from_zero_to_one_and_symmetric(a, b):
    size = min(len(a), len(b))
    there, back = distance(a[:size], b[:size]), distance(b[:size], a[:size])
    assert 0 <= there.distance <= 1
    assert there.distance == pytest.approx(back.distance)
    assert distance(a, a).distance == 0
    assert distance(a, a).agree


def test_opposite_answers_are_as_far_apart_as_can_be():
    assert distance([[1.0, 2.0]], [[-1.0, -2.0]]).distance == pytest.approx(1)
    assert distance([[1.0, 0.0]], [[0.0, 0.0]]).distance == pytest.approx(1)


def test_classes_agree_where_the_highest_score_is_the_same():
    assert distance([[0.1, 0.9]], [[0.4, 0.6]]).agree
    assert not distance([[0.1, 0.9]], [[0.6, 0.4]]).agree
    assert not distance([[0.1, 0.9]], [[0.4, 0.6]], rule="close").agree
    assert distance([[5.0]], [[5.001]]).agree
    assert not distance([[5.0]], [[5.1]]).agree


def test_nan_is_equal_to_nan_alone():
    nan = math.nan
    assert distance([[nan, 1.0]], [[nan, 1.0]]).distance == 0
    assert distance([[nan, 1.0]], [[nan, 1.0]]).agree
    wrong = distance([[0.2, 0.8]], [[nan, nan]])
    assert (wrong.agree, wrong.distance) == (False, 1.0)


def test_whole_numbers_and_text_differ_by_the_share_of_unequal_elements():
    assert distance([1, 2, 3, 4], [1, 2, 3, 5], "INT64").distance == 0.25
    texts = distance([b"a", b"b"], [b"a", b"c"], "BYTES")
    assert (texts.agree, texts.distance) == (False, 0.5)


def test_another_shape_is_as_far_as_can_be():
    found = distance([[1.0, 2.0]], [[1.0, 2.0, 3.0]])
    assert (found.agree, found.distance) == (False, 1.0)


@pytest.mark.parametrize(
    ("values", "datatype", "expected"),
    [
        ([[0.1, 0.7, 0.2]], "FP32", 1),
        ([3], "INT64", 3),
        ([[math.nan, 1.0]], "FP32", None),
        ([math.inf], "FP32", None),
        ([b"cat"], "BYTES", None),
        ([], "FP32", None),
    ],
)
def test_the_class_an_answer_names(values, datatype, expected):
    assert predicted([output(values, datatype)]) == expected
    assert predicted([]) is None


# Pairs.


def reply(seconds, scores=(0.9, 0.1)):
    return Answered(InferReply((output([list(scores)]),), seconds))


FAILED = Answered(None, "m 1: it broke")


def pairs():
    return Pairs(METRICS, 0.05, "auto", 1e-3)


def test_what_pairs_of_known_answers_add_up_to():
    found = pairs()
    rng = np.random.default_rng(3)
    for number in range(2000):
        right = number % 2
        good, bad = ((0.9, 0.1), (0.1, 0.9))[:: 1 if not right else -1]
        wrong = number % 10 == 0
        found.add(
            reply(0.001 * rng.lognormal(0, 0.2), good),
            reply(0.002 * rng.lognormal(0, 0.2), bad if wrong else good),
            right,
        )
    known = found.intervals()
    assert known["agreement"].estimate == pytest.approx(-0.1)
    assert known["agreement"].low < -0.1 < known["agreement"].high < -0.05
    assert known["accuracy"].estimate == pytest.approx(-0.1)
    assert known["accuracy"].high < -0.05
    assert known["success"].estimate == 0
    assert known["latency_mean"].estimate == pytest.approx(1, abs=0.05)
    assert known["latency_p50"].low > 0.8
    assert 0 < known["output_distance"].low < known["output_distance"].high < 0.2
    assert "energy" not in known
    assert found.count == 2000


def test_failures_are_counted_and_time_nothing():
    found = pairs()
    for _ in range(100):
        found.add(reply(0.001), FAILED, None)
    found.add(FAILED, reply(0.001), None)
    found.add(FAILED, FAILED, None)
    found.add_missing("challenger_missing")
    found.add_missing("champion_missing")
    assert found.outcomes == {
        "both": 0,
        "champion_failed": 1,
        "challenger_failed": 100,
        "both_failed": 1,
        "champion_missing": 1,
        "challenger_missing": 1,
        "both_missing": 0,
    }
    assert found.count == 102
    assert found.failure == "m 1: it broke"
    known = found.intervals()
    assert set(known) == {"success"}
    assert known["success"].high < 0


@pytest.mark.parametrize(
    ("slow", "each", "missing"),
    [(FAILED, 3, 117), (reply(0.9), 1, 204)],
    ids=["hangs 6 s a minute", "stalls 0.9 s every 10 s"],
)
def test_pairs_that_a_busy_challenger_missed_speak_for_nothing(slow, each, missing):
    """Offered 1,200 pairs a minute, of which a tenth fall into its bad times."""
    found = pairs()
    for _ in range(20):
        for _ in range(each):
            found.add(reply(0.001), slow, None)
        for _ in range(missing):
            found.add_missing("challenger_missing")
        for number in range(1200 - each - missing):
            seconds = 0.001 + number % 7 * 1e-6
            found.add(reply(seconds), reply(seconds), None)
    known = found.intervals()
    assert known["success"].low < -0.09
    assert not Finding("success", known["success"], 0.01).passes
    for metric in ("latency_mean", "latency_p95"):
        assert not Finding(metric, known[metric], 0.05).passes
        assert "still busy" in known[metric].withheld


def test_pairs_that_a_busy_champion_missed_do_not_speak_against_the_challenger():
    """It hangs a tenth of the time; the challenger fails 3 % of the time."""
    found = pairs()
    for number in range(2700):
        failed = number % 33 == 0
        found.add(reply(0.001), FAILED if failed else reply(0.001), None)
        if number % 9 == 0:
            found.add_missing("champion_missing")
    known = found.intervals()
    assert Finding("success", known["success"], 0.01).verdict == "undecided"
    assert known["success"].high > 0.06
    for metric in ("latency_mean", "latency_p95"):
        assert known[metric].low == -1
        assert "champion was still busy" in known[metric].withheld


def test_pairs_that_both_missed_speak_for_neither():
    found = pairs()
    for number in range(3000):
        found.add(reply(0.001), reply(0.001 + number % 7 * 1e-6), None)
        if number % 9 == 0:
            found.add_missing("both_missing")
    known = found.intervals()
    assert known["success"].low < -0.09 < 0.09 < known["success"].high
    assert (known["latency_p95"].low, known["latency_p95"].high) == (-1, math.inf)


def test_a_challenger_that_is_always_busy_can_still_be_slower():
    found = pairs()
    for number in range(6000):
        found.add(reply(0.001 + number % 7 * 1e-6), reply(0.01), None)
        found.add_missing("challenger_missing")
    interval = found.intervals()["latency_p50"]
    assert Finding("latency_p50", interval, 0.05).verdict == "worse"


def test_an_answer_that_breaks_the_protocol_does_not_agree():
    found = pairs()
    broken = Answered(InferReply((OutputTensor("y", "FP32", (1, 2), b""),), 0.001))
    found.add(reply(0.001), broken, 0)
    assert found.intervals()["agreement"].estimate == -1
    assert "has 0 bytes" in found.failure


def test_an_interval_is_looked_at_again_when_there_are_more_pairs():
    found = pairs()
    for seconds in (0.001, 0.0012, 0.0009, 0.0011) * 50:
        found.add(reply(seconds), reply(seconds), None)
    first = found.intervals()["latency_p50"]
    found.add(reply(0.001), reply(0.001), None)
    assert found.intervals()["latency_p50"] is first
    for _ in range(10):
        found.add(reply(0.001), reply(0.001), None)
    assert found.intervals()["latency_p50"].pairs == 211


# Verdicts.


@pytest.mark.parametrize(
    ("low", "high", "verdict", "passes"),
    [
        (0.06, 0.2, "worse", False),
        (0.01, 0.2, "undecided", False),
        (-0.04, 0.04, "equivalent", True),
        (-0.3, 0.04, "undecided", True),
        (-0.3, -0.06, "better", True),
        (-1.0, math.inf, "undecided", False),
    ],
)
def test_what_an_interval_says_beside_its_margin(low, high, verdict, passes):
    slower = Finding("latency_p95", Interval(0, low, high, 9), 0.05)
    assert (slower.verdict, slower.passes) == (verdict, passes)
    # Of an accuracy more is better: the same the other way round.
    righter = Finding("accuracy", Interval(0, -high, -low, 9), 0.05)
    assert (righter.verdict, righter.passes) == (verdict, passes)


def test_every_metric_has_a_margin():
    assert all(MarginSettings().of(metric) > 0 for metric in METRICS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("m", ("m", "")),
        ("m:2", ("m", "2")),
        ("a:b", ("a:b", "")),
        ("a:b:12", ("a:b", "12")),
        (":3", (":3", "")),
    ],
)
def test_a_model_is_named_with_or_without_its_version(text, expected):
    assert reference(text) == expected


def test_the_accuracy_of_text_is_unknown_and_not_equal() -> None:
    """A label is the number of a class, which text has none of."""
    found = pairs()
    answer = Answered(InferReply((output(["cat"], "BYTES"),), 0.001))
    for number in range(2000):
        found.add(answer, answer, number % 2)
    assert "accuracy" not in found.intervals()
    assert found.intervals()["agreement"].estimate == 0
