"""The alarm's evidence: its mean without a change, its shares, the names it gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from drifting_data import SCHEMA, draw
from scipy import stats

from drift.alarms import likelihood_ratios
from drift.alarms.explanation import CHANNELS, e_benjamini_hochberg
from drift.alarms.monitor import AlarmSettings, Monitor
from drift.errors import StateError
from drift.fitting import fit


@pytest.mark.parametrize("margin", [0.0, 0.07])
@pytest.mark.parametrize(("up", "down"), [(1.0, 1.0), (1.5, 1.1)])
def test_the_evidence_for_a_shift_is_a_ratio_of_densities_of_the_difference(
    margin, up, down
):
    """exp(s m D) over its mean; of normal scores N(s, 1/m) over N(0, 1/m)."""
    shifts = np.array(likelihood_ratios.SHIFTS)
    tilt = likelihood_ratios.Tilts(
        *(np.full((2, len(shifts)), value) for value in (up, down))
    )
    n_b, n_a = np.array([[400.0, 90.0]]), np.array([[50.0, 110.0]])
    sums = np.array([[30.0, -8.0]]), np.array([[-20.0, 40.0]])
    found = likelihood_ratios.of_mean(
        (n_b, sums[0]), (n_a, sums[1]), tilt, margin=margin
    )
    for place, (b, a) in enumerate(zip(n_b[0], n_a[0], strict=True)):
        difference = sums[1][0, place] / a - sums[0][0, place] / b
        m = 1 / (1 / a + 1 / b)
        ratios = []
        for sign, higher, lower in ((1, up, down), (-1, down, up)):
            cumulant = a * higher * (shifts * m / a) ** 2 / 2
            cumulant += b * lower * (shifts * m / b) ** 2 / 2
            gain = shifts * m * (sign * difference - margin)
            ratios.append(np.exp(gain - cumulant))
            if (up, margin) == (1.0, 0.0):
                law = [stats.norm(at, 1 / np.sqrt(m)) for at in (sign * shifts, 0.0)]
                expected = law[0].pdf(difference) / law[1].pdf(difference)
                assert ratios[-1] == pytest.approx(expected)
        assert np.exp(found[0, place]) == pytest.approx(np.mean(ratios))
    nothing = np.zeros((1, 2))
    none = likelihood_ratios.of_mean((n_b, sums[0]), (nothing, nothing), tilt)
    assert none == pytest.approx(0.0)


def test_moments_are_those_of_the_scores_and_never_below_a_normal_laws():
    scores, cells = np.array([[-1.0, 1.0], [-0.1, 0.1]]), np.array([[1, 3], [2, 2]])
    found = likelihood_ratios.tilts(scores, cells)
    for place, shift in enumerate(likelihood_ratios.SHIFTS):
        for side, sign in ((found.up, 1), (found.down, -1)):
            moment = 0.25 * np.exp(-sign * shift) + 0.75 * np.exp(sign * shift)
            wanted = max(2 * np.log(moment) / shift**2, 1.0)
            assert side[:, place] == pytest.approx([wanted, 1.0])


def test_of_more_events_than_values_at_risk_as_many_count():
    """State that was saved while new values counted among all rows."""
    after = np.array([500.0]), np.array([3.0])
    of_all, of_more = (
        likelihood_ratios.of_rate((np.array([100.0]), np.array([events])), after)
        for events in (100.0, 120.0)
    )
    assert of_more == of_all
    assert np.isfinite(of_more).all()


@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_the_evidence_for_a_raised_rate_agrees_with_scipys_binomials(margin):
    before = np.array([[5000.0, 5000.0, 40.0]]), np.array([[0.0, 60.0, 39.0]])
    after = np.array([[500.0, 300.0, 20.0]]), np.array([[3.0, 2.0, 20.0]])
    found = likelihood_ratios.of_rate(before, after, margin=margin)[0]
    for place, (n_b, k_b, n_a, k_a) in enumerate(np.stack((*before, *after), -1)[0]):
        least = min((k_b + 1) / (n_b + 2) + margin, 0.999)
        raised = [least * factor for factor in likelihood_ratios.FACTORS]
        raised += [least + (1 - least) * more for more in likelihood_ratios.EXCESS]
        others = stats.binom.pmf(k_a, n_a, np.minimum(raised, 0.999))
        same = stats.betabinom.pmf(k_a, n_a, k_b + 1, n_b - k_b + 1)
        assert np.exp(found[place]) == pytest.approx(others.mean() / same, rel=1e-6)


def test_the_evidence_beyond_all_that_was_shown_is_a_ratio_of_likelihoods():
    shown = np.array([[[0.1, 0.4], [0.2, 0.6]], [[np.nan, 0.4], [0.2, 0.6]]])
    after = np.array([[[45.0, 30.0], [45.0, 30.0]]])
    found = likelihood_ratios.of_range(after, shown)[0]
    ratios = []
    for count, (low, high) in zip((45, 30), ((0.1, 0.2), (0.4, 0.6)), strict=True):
        odds = np.array([low / (1 - low) / 2, 2 * high / (1 - high)])
        shares = np.linspace(*(odds / (1 + odds)), 200_001)
        greatest = stats.binom.pmf(count, 75, shares).max()
        ratios.append(stats.betabinom.pmf(count, 75, 0.5, 0.5) / greatest)
    # Where one bound is not known, only the other bin says something.
    assert np.exp(found) == pytest.approx([np.mean(ratios), ratios[1] / 2], rel=1e-6)


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
