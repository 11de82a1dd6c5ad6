"""The alarm's evidence: its mean without a change, its shares, the names it gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from drifting_data import SCHEMA, draw
from scipy import stats

from drift.alarms import likelihood_ratios
from drift.alarms.monitor import CHANNELS, AlarmSettings, Monitor
from drift.alarms.selection import e_benjamini_hochberg
from drift.errors import StateError
from drift.fitting import fit


def test_the_evidence_for_a_shift_has_mean_one_without_any():
    rng = np.random.default_rng(12)
    runs = 40_000
    one = likelihood_ratios.Tilts(
        *(np.ones((runs, len(likelihood_ratios.SHIFTS))),) * 2
    )
    n_b, n_a = np.full(runs, 2000.0), np.full(runs, 300.0)
    sums = rng.normal(size=runs) * np.sqrt(n_b), rng.normal(size=runs) * np.sqrt(n_a)
    ratio = np.exp(likelihood_ratios.of_mean((n_b, sums[0]), (n_a, sums[1]), one))
    # Only the shifts of up to 0.1 have a variance small enough to average.
    assert ratio.mean() < 1.3


@pytest.mark.parametrize("rate", [0.0, 0.0001, 0.01, 0.3])
def test_the_evidence_for_a_raised_rate_is_at_most_one_on_average(rate):
    rng = np.random.default_rng(13)
    before = rng.binomial(5000, rate, size=20_000).astype(float)
    after = rng.binomial(500, rate, size=20_000).astype(float)
    n_b, n_a = np.full(20_000, 5000.0), np.full(20_000, 500.0)
    ratio = np.exp(likelihood_ratios.of_rate((n_b, before), (n_a, after)))
    assert ratio.mean() < 1.5


def test_the_evidence_for_another_shape_agrees_with_scipys_multinomials():
    before = np.array([[[4000.0, 3000.0, 2000.0, 1000.0]]])
    after = np.array([[[1.0, 5.0, 0.0, 2.0]]])
    used = np.array([4])
    found = likelihood_ratios.of_shape(before, after, used)[0, 0]
    posterior = before[0, 0] + 0.5
    share = posterior / posterior.sum()

    def probability(alpha):
        return stats.dirichlet_multinomial(alpha, 8).logpmf(after[0, 0].astype(int))

    others = [probability(c * share) for c in likelihood_ratios.CONCENTRATIONS]
    expected = np.logaddexp.reduce(others) - np.log(3) - probability(posterior)
    assert np.isclose(found, expected)


def test_false_names_stay_within_their_share_under_full_dependence():
    rng = np.random.default_rng(14)
    wrong = 0
    for _ in range(2000):
        shared = rng.normal()
        e = np.full(20, 1.5 * shared - 1.5**2 / 2)
        wrong += bool(e_benjamini_hochberg(e, 0.1))
    # At most 10 %: of 2,000, 260 or more has chance 1e-5 (binomial).
    assert wrong < 260


def test_naming_is_what_its_definition_says():
    rng = np.random.default_rng(15)
    for _ in range(50):
        e = rng.normal(scale=4.0, size=7)
        sizes = [
            k for k in range(1, 8) if k * np.exp(np.sort(e)[::-1][k - 1]) / 7 >= 1 / 0.2
        ]
        assert len(e_benjamini_hochberg(e, 0.2)) == max(sizes, default=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"windows_per_false_alarm": 1.0},
        {"windows_per_false_alarm": float("nan")},
        {"false_share": 0.0},
        {"margin_sigma": -0.1},
    ],
)
def test_settings_that_promise_nothing_are_refused(wrong):
    with pytest.raises(StateError):
        AlarmSettings(**wrong)


def test_every_channel_gets_a_share_and_a_feature_no_more_than_its_own():
    profile = fit(SCHEMA, draw(np.random.default_rng(16), 1000))
    weights = np.exp(Monitor(profile)._log_weights)
    assert weights.shape == (6, len(CHANNELS))
    assert np.allclose(weights.sum(axis=1), 1.0)
    used = [tuple(row > 0) for row in weights]
    # Independent rows: nothing is extrapolated, so the range is not asked about.
    assert used[0] == (*(True,) * 6, False)
    assert used[4] == (False, False, True, True, False, True, False)
    assert len(set(itertools.chain(used))) == 2
