"""Scores against scikit-learn's, and outputs looked at without labels."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from drift.numerics.answer_distribution import shape_of
from exporter.errors import GoldenDataError
from exporter.features.golden import answer_quality
from exporter.features.golden.golden_data import GoldenSet, prepare
from exporter.features.golden.golden_scoring import Scoring
from exporter.features.golden.golden_settings import GoldenData
from exporter.triton.protocol_types import ModelSpec, TensorSpec

ROWS = 400


def scoring(truth, *, expected=None, datatype="FP32", **settings):
    golden = GoldenSet(
        "FILE", "set", "0" * 64, len(truth), {"x": np.zeros((len(truth), 1))},
        None if truth.dtype == object else truth, expected or {},
    )  # fmt: skip
    spec = ModelSpec(
        "m",
        "1",
        (TensorSpec("x", "FP32", (-1, 1)),),
        (TensorSpec("p", datatype, (-1, -1)),),
        8,
    )
    data = GoldenData(file="set.npz", label="label", **settings)
    return Scoring(prepare(golden, spec), data, spec)


def scored(truth, outputs, **settings):
    found = scoring(truth, **settings)
    for places in np.array_split(np.random.default_rng(1).permutation(len(truth)), 13):
        found.judge(places, {"p": outputs[places]})
    return found


@pytest.fixture
def many():
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 5, ROWS)
    logits = rng.normal(size=(ROWS, 5)) + 1.5 * np.eye(5)[truth]
    powers = np.exp(logits)
    return truth, powers / powers.sum(axis=1, keepdims=True)


def test_scores_of_many_classes_are_those_of_scikit_learn(many) -> None:
    truth, scores = many
    predicted = scores.argmax(axis=1)
    found = dict(scored(truth, scores, top_k=[2, 5]).scores())
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        truth, predicted, average="macro"
    )
    assert found == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(truth, predicted),
            "top_2": metrics.top_k_accuracy_score(truth, scores, k=2),
            "top_5": 1.0,
            "precision": precision,
            "recall": recall,
            "f1": f1,
            "auc": metrics.roc_auc_score(truth, scores, multi_class="ovr"),
        }
    )


@pytest.mark.parametrize("columns", [1, 2])
def test_scores_of_two_classes_are_of_the_second(columns) -> None:
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 2, ROWS)
    yes = np.clip(rng.normal(0.35 + 0.3 * truth, 0.2), 0, 1).round(2)
    outputs = yes[:, None] if columns == 1 else np.stack([1 - yes, yes], axis=1)
    found = dict(scored(truth, outputs).scores())
    # Right in the middle no class stands out.
    decided = yes != 0.5
    predicted = np.where(decided, yes > 0.5, 1 - truth).astype(int)
    assert found["accuracy"] == pytest.approx((predicted == truth).mean())
    assert found["recall"] == pytest.approx(
        ((yes > 0.5) & (truth == 1)).sum() / (truth == 1).sum()
    )
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(truth, yes))


def test_errors_of_numbers_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(5)
    truth = rng.normal(size=ROWS)
    outputs = (truth + rng.normal(0, 0.3, ROWS))[:, None]
    found = dict(scored(truth, outputs).errors())
    assert found == pytest.approx(
        {
            "mae": metrics.mean_absolute_error(truth, outputs),
            "rmse": metrics.root_mean_squared_error(truth, outputs),
        }
    )


def test_logits_are_taken_for_logits(many) -> None:
    truth, scores = many
    shape = shape_of(np.log(scores) + 7, classes=True)
    np.testing.assert_allclose(shape.confidence, scores.max(axis=1))
    assert dict(scored(truth, np.log(scores)).scores())["accuracy"] == pytest.approx(
        (scores.argmax(axis=1) == truth).mean()
    )


def test_zeros_are_no_answer_and_nan_is_none_either(many) -> None:
    truth, scores = many
    for value in (0.0, np.nan):
        found = scored(truth, np.full_like(scores, value))
        assert dict(found.scores())["accuracy"] == 0
        assert found.class_shares() == {}


def test_expected_answers_match_within_tolerance_and_cosine_tells_direction() -> None:
    rng = np.random.default_rng(6)
    wanted = rng.normal(size=(ROWS, 8))
    near = wanted * (1 + 5e-4)
    truth = np.array([None] * ROWS, dtype=object)
    well = dict(scored(truth, near, expected={"p": wanted}).scores())
    assert (well["match"], well["match:p"]) == (1, 1)
    assert well["cosine"] == pytest.approx(1)
    turned = dict(scored(truth, -wanted, expected={"p": wanted}).scores())
    assert (turned["match"], turned["cosine"]) == (0, pytest.approx(-1))


def test_integers_must_be_equal() -> None:
    whole = np.array([[1, 2], [3, 4]])
    assert answer_quality.agree(whole, whole, 0.5, 5).all()
    assert answer_quality.agree(whole + 1, whole, 0.5, 5).tolist() == [False, False]


def test_a_sample_that_was_not_answered_counts_neither_way(many) -> None:
    truth, scores = many
    found = scored(truth, scores)
    wrong = np.flatnonzero(scores.argmax(axis=1) != truth)
    found.unanswered(wrong)
    assert dict(found.scores())["accuracy"] == 1


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_an_answer_without_values_is_invalid(task) -> None:
    """A model with an open dimension may answer a tensor of size 0."""
    empty = np.zeros((2, 0), np.float32)
    truth = np.array([0.0, 1.0]) if task == "regression" else np.array([0, 1])
    found = scoring(truth)
    judged = found.judge(np.arange(2), {"p": empty})
    assert +judged.outcomes == {"invalid": 2}
    assert "'p' is []" in judged.fault
    assert dict(found.errors()) == {}
    accuracy = 0 if task == "classification" else None
    assert dict(found.scores()).get("accuracy") == accuracy


def test_texts_are_compared_byte_by_byte() -> None:
    texts = np.array([[b"\xff"], [b"a\x00b"], [b"c\x00"]], object)
    assert answer_quality.agree(texts, texts, 0, 0).all()
    # As a file of numpy's keeps them.
    assert answer_quality.agree(texts, texts.astype("S"), 0, 0).all()
    others = np.array([[b"\xfe"], [b"a"], [b"c\x00\x01"]], object)
    assert not answer_quality.agree(texts, others, 0, 0).any()


def test_the_cosine_to_nothing_is_one_of_nothing_alone() -> None:
    wanted = np.array([[0, 0], [0, 0], [3, 4]], np.float32)
    found = np.array([[0, 0], [1, 0], [0, 0]], np.float32)
    assert answer_quality.cosines(found, wanted).tolist() == [1, 0, 0]
    empty = np.zeros((2, 0, 3), np.float32)
    assert answer_quality.cosines(empty, empty).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("answers", "settings"),
    [
        (np.array([[0], [2], [2], [4]], np.int64), {}),
        # As the FIL backend names classes.
        (np.array([[0], [2], [2], [4]], np.float32), {}),
        (np.array([[b"0"], [b"2"], [b"2"], [b"4"]], object), {}),
        (
            np.array([[b"a"], [b"c"], [b"c"], [b"e"]], object),
            {"classes": tuple("abcde")},
        ),
    ],
)
def test_an_output_of_one_value_may_name_the_class(answers, settings) -> None:
    labels = np.array([0, 2, 3, 4])
    if settings:
        labels = np.array(settings["classes"])[labels]
    found = scoring(labels, **settings)
    judged = found.judge(np.arange(4), {"p": answers})
    assert +judged.outcomes == {"right": 3, "wrong": 1}
    assert judged.right.tolist() == [True, True, False, True]
    assert dict(found.scores())["accuracy"] == 0.75
    assert found.class_shares() == {0: 0.25, 2: 0.5, 4: 0.25}


@pytest.mark.parametrize("answer", [b"maybe", b""])
def test_text_that_names_no_class_is_wrong(answer) -> None:
    found = scoring(np.array([0, 1]))
    judged = found.judge(np.arange(2), {"p": np.array([[answer], [b"1"]], object)})
    assert +judged.outcomes == {"right": 1, "wrong": 1}


def test_one_score_for_yes_is_no_name_of_a_class() -> None:
    found = scoring(np.array([0, 1]))
    found.judge(np.arange(2), {"p": np.array([[0.2], [0.9]], np.float32)})
    assert dict(found.scores())["accuracy"] == 1


def test_answers_that_are_no_number_do_not_make_a_small_error() -> None:
    found = scoring(np.array([0.5, 1.5]))
    found.judge(np.arange(2), {"p": np.array([[0.5], [np.nan]], np.float32)})
    assert dict(found.errors()) == {}
    found.judge(np.arange(2), {"p": np.array([[0.5], [2.5]], np.float32)})
    assert dict(found.errors())["mae"] == 0.5


def test_text_is_no_answer_of_a_regression() -> None:
    with pytest.raises(GoldenDataError, match="'p': is text; want numbers"):
        scoring(np.array([0.5, 1.5]), datatype="BYTES")
