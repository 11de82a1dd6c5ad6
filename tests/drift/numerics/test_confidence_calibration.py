"""Accuracy without labels: right where the inputs changed, blind where the concept did."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from drift.numerics.confidence_calibration import calibrate, isotonic


def drawn(rng, rows, *, mean=0.75, honest=True):
    """Confidences, and whether the answers are right: as often as they say, or not."""
    said = np.clip(rng.normal(mean, 0.15, rows), 0.05, 0.999)
    # An overconfident model: of 90 % it is right in 81 %.
    rate = said**2 if honest else 0.5 * said**2
    return said, (rng.random(rows) < rate).astype(float)


def copied(rng, rows, copies, **scene):
    """As `drawn`, each of them several times, and which are copies of which."""
    said, right = drawn(rng, rows // copies, **scene)
    groups = np.repeat(np.arange(rows // copies), copies)
    return np.repeat(said, copies), np.repeat(right, copies), groups


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=60))
def test_pooling_is_scikit_learns_isotonic_regression(points) -> None:
    points.sort(key=lambda point: point[0])
    x = np.array([p[0] for p in points], float)
    y = np.array([p[1] for p in points], float)
    starts, levels, sizes = isotonic(x, y)
    ours = np.repeat(levels, sizes.astype(int))
    theirs = IsotonicRegression().fit(x, y).predict(x)
    np.testing.assert_allclose(ours, theirs, atol=1e-9)
    assert sizes.sum() == len(points)
    assert (np.diff(levels) > 0).all()
    assert starts[0] == 0


def test_the_curve_is_what_the_answers_say() -> None:
    said, right = drawn(np.random.default_rng(1), 20_000)
    found = calibrate(said, right)
    assert found.samples == 20_000
    at = np.quantile(said, np.arange(1, 10) / 10)
    assert found.accuracy_of(at) == pytest.approx(at**2, abs=0.05)


@pytest.mark.parametrize(
    ("golden", "production", "widest"),
    [(1, 1, 0.12), (10, 1, 0.25), (1, 10, 0.32), (5, 5, 0.27)],
)
def test_the_interval_holds_the_accuracy_as_often_as_it_says(
    golden, production, widest
) -> None:
    """Whatever the rows are copied: 95 %, and not by being wide."""
    rng = np.random.default_rng(2)
    inside, widths = 0, []
    runs = 400
    for _ in range(runs):
        found = calibrate(*copied(rng, 1000, golden))
        said, right, groups = copied(rng, 500, production)
        estimate = found.estimate(said, groups)
        inside += estimate.low <= right.mean() <= estimate.high
        widths.append(estimate.high - estimate.low)
    # 95 % less three standard errors, and more.
    assert 0.917 <= inside / runs <= 0.99
    assert np.mean(widths) < widest


@pytest.mark.parametrize("mean", [0.7, 0.65, 0.6, 0.5, 0.4])
def test_less_sure_answers_widen_the_interval_until_it_holds(mean) -> None:
    rng = np.random.default_rng(2)
    inside, runs = 0, 200
    for _ in range(runs):
        found = calibrate(*drawn(rng, 1000))
        said, right = drawn(rng, 500, mean=mean)
        estimate = found.estimate(said)
        inside += estimate.low <= right.mean() <= estimate.high
    assert inside / runs >= 0.93


def test_copies_do_not_make_a_calibration() -> None:
    rng = np.random.default_rng(4)
    found = calibrate(*copied(rng, 1000, 25))
    assert found.independent == pytest.approx(40)
    assert not found.estimate(drawn(rng, 500)[0]).conditions["calibrated"]


def test_a_changed_concept_is_not_seen() -> None:
    rng = np.random.default_rng(3)
    found = calibrate(*drawn(rng, 2000))
    said, right = drawn(rng, 2000, honest=False)
    estimate = found.estimate(said)
    assert estimate.accuracy - right.mean() > 0.2
    assert all(estimate.conditions.values()), "nothing but the words can say so"


def test_each_condition_is_told_when_it_fails() -> None:
    rng = np.random.default_rng(4)
    found = calibrate(*drawn(rng, 1000))
    said, _ = drawn(rng, 500)

    def failed(estimate):
        return {name for name, holds in estimate.conditions.items() if not holds}

    assert failed(found.estimate(said)) == set()
    assert failed(found.estimate(said[:20])) == {"enough_outputs"}
    assert failed(found.estimate(said * 0.05)) == {"within_calibration"}
    few = calibrate(*drawn(rng, 20))
    assert "calibrated" in failed(few.estimate(said))


def test_an_answer_that_is_not_finite_counts_as_wrong() -> None:
    rng = np.random.default_rng(5)
    found = calibrate(*drawn(rng, 1000))
    said, _ = drawn(rng, 500)
    broken = said.copy()
    broken[::2] = np.nan
    assert found.estimate(broken).accuracy == pytest.approx(
        found.estimate(said).accuracy / 2, abs=0.03
    )
    assert calibrate(np.full(10, np.nan), np.ones(10)) is None


def test_on_real_digits_it_is_off_by_few_points_at_most() -> None:
    bundle = load_digits()
    rng = np.random.default_rng(6)
    order = rng.permutation(len(bundle.target))
    train, golden, production = np.split(order, [300, 1000])
    # Trained on little and blurred, so that there is something to estimate.
    noisy = bundle.data + rng.normal(0, 6, bundle.data.shape)
    model = LogisticRegression(max_iter=5000).fit(noisy[train], bundle.target[train])
    scores = model.predict_proba(noisy)
    right = (scores.argmax(axis=1) == bundle.target).astype(float)
    found = calibrate(scores[golden].max(axis=1), right[golden])
    estimate = found.estimate(scores[production].max(axis=1))
    assert estimate.low <= right[production].mean() <= estimate.high
    assert abs(estimate.accuracy - right[production].mean()) < 0.03
