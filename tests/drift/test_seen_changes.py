"""Any change of a column that a two-sample Kolmogorov-Smirnov test is sure of is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import stats

from drift.features import Schema, Tensor
from drift.fitting import fit
from drift.judgement import judge

ROWS = 5000
SURE = 1e-12
SCHEMA = Schema.from_tensors([Tensor("x", "FP64", (1,))])

COLUMNS = {
    "constant": lambda _: np.full(ROWS, 5.0),
    "large constant": lambda _: np.full(ROWS, 1_700_000_000.0),
    "flags": lambda rng: (rng.random(ROWS) < 0.3).astype(float),
    "rare flags": lambda rng: (rng.random(ROWS) < 0.004).astype(float),
    "ten grades": lambda rng: rng.integers(0, 10, ROWS).astype(float),
    "few counts": lambda rng: rng.poisson(2.0, ROWS).astype(float),
    "many counts": lambda rng: rng.poisson(40.0, ROWS).astype(float),
    "wide counts": lambda rng: rng.integers(0, 3000, ROWS).astype(float),
    "prices": lambda rng: rng.choice([0.99, 1.99, 4.99, 9.99, 19.99, 499.0], ROWS),
    "mostly zero": lambda rng: rng.lognormal(size=ROWS) * (rng.random(ROWS) < 0.4),
    "normal": lambda rng: rng.normal(size=ROWS),
    "lognormal": lambda rng: rng.lognormal(0.0, 3.0, ROWS),
    "cauchy": lambda rng: rng.standard_cauchy(ROWS),
    "two far peaks": lambda rng: rng.normal(
        np.where(rng.random(ROWS) < 0.5, 0, 1e6), 1
    ),
}


def shifted(values, rng, size):
    return values + size * _unit(values)


def jittered(values, rng, size):
    return values + size * _unit(values) * rng.uniform(-1, 1, values.size)


def partly_shifted(values, rng, size):
    return np.where(rng.random(values.size) < 0.2, shifted(values, rng, size), values)


def one_value_moved(values, rng, size):
    return np.where(values == np.median(values), values + size * _unit(values), values)


def wider(values, rng, size):
    centre = np.median(values)
    return centre + (values - centre) * (1.0 + size)


def stretch_pushed_together(values, rng, size):
    low, high = np.quantile(values, np.sort(rng.uniform(0, 1, 2)))
    return np.where((values >= low) & (values <= high), high, values)


def narrow_stretch_pushed_together(values, rng, size):
    """Little more than the test needs: most of it may be within one coarse bin."""
    share = 0.076 + 0.01 * size
    start = rng.uniform(0, 1 - share)
    low, high = np.quantile(values, (start, start + share))
    end = rng.choice((low, high))
    return np.where((values >= low) & (values <= high), end, values)


def redrawn(values, rng, size):
    known = np.unique(values)
    keep = known[rng.random(known.size) < 0.5]
    return rng.choice(keep, values.size) if keep.size else values + 1.0


def _unit(values):
    steps = np.diff(np.unique(values))
    return float(np.median(steps)) if steps.size > 1 else 1.0


CHANGES = (
    shifted,
    jittered,
    partly_shifted,
    one_value_moved,
    wider,
    stretch_pushed_together,
    narrow_stretch_pushed_together,
    redrawn,
)


def found(reference, window):
    profile = fit(SCHEMA, {"x": reference[:, None]})
    counted = profile.accumulator()
    counted.update({"x": window[:, None]})
    return judge(profile, counted.take()).outcome == "drift"


@settings(max_examples=120)
# Missed when there were 16 coarse bins: stretches that two of them share.
@example("cauchy", stretch_pushed_together, 1.0, 1058771)
@given(
    st.sampled_from(sorted(COLUMNS)),
    st.sampled_from(CHANGES),
    st.floats(0.01, 3.0),
    st.integers(0, 2**32),
)
def test_what_a_kolmogorov_smirnov_test_is_sure_of_is_drift(column, change, size, seed):
    rng = np.random.default_rng(seed)
    reference = COLUMNS[column](rng)
    window = change(COLUMNS[column](rng), rng, size)
    assume(stats.ks_2samp(reference, window, method="asymp").pvalue < SURE)
    assert found(reference, window)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (np.array([5.0]), np.array([5.4])),
        (np.array([5.0]), np.array([4.8, 5.0, 5.2])),
        (np.array([0.0, 1.0]), np.array([0.4, 0.6])),
        (np.arange(10.0), np.arange(10.0) + 0.45),
        (np.array([1.7e9]), np.array([1.7e9 + 1])),
    ],
)
def test_changes_between_known_values_are_drift(before, after):
    rng = np.random.default_rng(0)
    assert found(rng.choice(before, ROWS), rng.choice(after, ROWS))


def test_the_same_laws_again_are_not_drift():
    schema = Schema.from_tensors([Tensor("x", "FP64", (len(COLUMNS),))])
    drifts = 0
    for seed in range(30):
        rng = np.random.default_rng([seed, 1])
        reference, window = (
            np.column_stack([draw(rng) for draw in COLUMNS.values()]) for _ in range(2)
        )
        profile = fit(schema, {"x": reference})
        counted = profile.accumulator()
        counted.update({"x": window})
        drifts += judge(profile, counted.take()).outcome == "drift"
    # 30 at 1 in 100: 4 or more has chance 2e-4 (binomial).
    assert drifts <= 3


def test_a_column_without_values_is_left_out_of_the_smallest_detectable_shift():
    rng = np.random.default_rng(3)
    schema = Schema.from_tensors([Tensor("x", "FP32", (2,))])
    x = rng.normal(size=(4000, 2)).astype(np.float32)
    profile = fit(schema, {"x": x})

    def detectable():
        window = profile.accumulator()
        window.update({"x": x[:1000]})
        return judge(profile, window.take()).detectable_sigma

    before = detectable()
    x[:, 1] = np.nan
    assert detectable() == pytest.approx(before, rel=1e-6)
