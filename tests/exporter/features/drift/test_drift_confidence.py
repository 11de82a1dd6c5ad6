"""The confidence of answers, which the estimated accuracy is a mean of, as a feature."""

from __future__ import annotations

import numpy as np
import pytest

FEATURE = "estimated_accuracy"
CLASSES = 3


def answers(rng, number, boldness=2.0):
    """Probabilities of three classes; the bolder, the surer."""
    scores = rng.normal(size=(number, CLASSES)) * boldness
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def entry(bench, spec_of):
    bench.models(spec_of(outputs={"p": ("FP32", (-1, CLASSES))}))
    return {
        "side": "outputs",
        "learn": {"rows": 4000, "seconds": 1},
        "window": {"rows": 100, "seconds": 10},
        "features": [{"name": FEATURE, "tensor": "p", "of": "confidence"}],
    }


def watching(bench, entry):
    bench.watch(entry)
    bench.send(outputs={"p": answers(bench.rng, 4000)})
    bench.collect(after=5)
    assert bench.state(side="outputs") == "watching"


def alarm(bench):
    return bench.value("triton_feature_drift_alarm", "m", FEATURE)


def test_answers_that_become_unsure_alarm_and_the_same_ones_do_not(bench, entry):
    watching(bench, entry)
    for _ in range(10):
        bench.window(outputs={"p": answers(bench.rng, 500)})
        assert alarm(bench) == 0
    for _ in range(4):
        bench.window(outputs={"p": answers(bench.rng, 500, boldness=1.2)})
    assert alarm(bench) == 1
    (change,) = bench.document(side="outputs")["changes"]
    assert change["feature"] == FEATURE
    assert change["shift_sigma"] < -0.3


def test_what_is_no_probability_counts_as_missing(bench, entry):
    watching(bench, entry)
    outputs = answers(bench.rng, 400)
    outputs[::4] = np.nan
    bench.window(outputs={"p": outputs})
    missing = bench.value("triton_feature_missing_ratio", "m", FEATURE)
    assert missing == pytest.approx(0.25)
    bench.window(outputs={"p": bench.rng.normal(size=(200, CLASSES)).astype("f4") * 9})
    assert bench.value("triton_feature_missing_ratio", "m", FEATURE) == 1.0
    assert bench.violations() == {}


def test_columns_and_confidence_of_one_tensor_are_watched_together(bench, entry):
    entry["features"] += [{"name": "first", "tensor": "p"}]
    watching(bench, entry)
    bench.window(outputs={"p": answers(bench.rng, 500)})
    for name in (FEATURE, "first"):
        assert bench.value("triton_feature_drift_alarm", "m", name) == 0
        assert bench.value("triton_feature_missing_ratio", "m", name) == 0
    assert bench.violations() == {}


@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        ({"p": ("FP32", (-1, 1))}, "tensor 'p' has rows of shape [1] FP32"),
        ({"p": ("INT32", (-1, 3))}, "tensor 'p' has rows of shape [3] INT32"),
        ({"p": ("FP32", (-1, 5000))}, "tensor 'p' has rows of shape [5000] FP32"),
        ({"q": ("FP32", (-1, 3))}, "tensor 'p' is absent: the model has q"),
    ],
)
def test_outputs_without_a_confidence_are_refused_with_the_reason(
    bench, entry, spec_of, outputs, found
):
    bench.models(spec_of(outputs=outputs))
    bench.watch(entry)
    assert bench.state(side="outputs") == "refused"
    (problem,) = bench.document(side="outputs")["problems"]
    assert problem.startswith(found)
