"""Dependence between rows: where it ends, where it does not, and its storms."""

from __future__ import annotations

import dependent_rows
import numpy as np
import pytest

from drift.alarms import likelihood_ratios
from drift.alarms.explanation import CHANNELS
from drift.alarms.monitor import Monitor
from drift.dispersion import Dispersion, estimate
from drift.features import Schema, Tensor
from drift.fitting import fit
from drift.limits import FAR
from drift.projection import BINS, Summary
from drift.reference import Profile

SCHEMA = Schema.from_tensors([Tensor("x", "FP64")])
ROWS = 32_768


def profile_of(effect, rng, per=64, share=0.5):
    """Rows with an effect of as many stretches as there are values in it."""
    values = share * np.repeat(effect, per) + rng.normal(size=effect.size * per)
    return fit(SCHEMA, {"x": values})


def spread_of(effect, rng, **more):
    return profile_of(effect, rng, **more).dispersion


@pytest.mark.parametrize("seed", range(4))
def test_dependence_that_ends_does_not_grow_and_that_of_a_season_does(seed):
    rng = np.random.default_rng(seed)
    stretches = rng.normal(size=ROWS // 64)
    assert spread_of(stretches, rng).growth[0] < 0.3
    season = np.sin(np.linspace(0, 2 * np.pi, ROWS // 64))
    assert spread_of(season, rng).growth[0] > FAR


def test_a_random_walk_grows_as_fast_as_may_be_and_its_promise_is_not_kept():
    rng = np.random.default_rng(1)
    walk = np.cumsum(rng.normal(size=ROWS // 64))
    profile = profile_of(walk / walk.std(), rng)
    assert profile.dispersion.growth[0] > 0.7
    assert "rows of x depend on each other over more rows" in profile.caveats[0]
    assert Profile.from_bytes(profile.to_bytes()).to_bytes() == profile.to_bytes()


def test_beyond_its_reach_the_overdispersion_stretches_as_a_power_of_the_rows():
    one = Dispersion.independent(2)
    spread = Dispersion(
        one.location,
        one.scale,
        one.shape,
        one.events,
        np.array([0.0, 0.5]),
        one.unit_rows,
        one.shown,
        reach_rows=1000.0,
    )
    rows = np.array([[10.0, 10.0], [1000.0, 1000.0], [4000.0, 4000.0]])
    assert np.allclose(spread.stretch(rows), [[1, 1], [1, 1], [1, 2]])
    assert np.array_equal(one.stretch(rows), np.ones((3, 2)))


def test_independent_rows_are_neither_stretched_nor_capped():
    rng = np.random.default_rng(2)
    capped = 0
    for _ in range(30):
        spread = fit(SCHEMA, {"x": rng.normal(size=4000)}).dispersion
        assert spread.growth[0] == 0
        capped += bool((spread.unit_rows > 0).any())
    # A channel is taken as dependent by chance in some per cent of cases.
    assert capped <= 8


def test_rows_that_hang_together_are_counted_in_stretches_of_about_that_length():
    rng = np.random.default_rng(3)
    spread = spread_of(rng.normal(size=ROWS // 256), rng, per=256)
    assert 128 <= spread.unit_rows[0, 0] <= 1024


def test_storms_raise_the_overdispersion_beyond_what_the_variance_asks_for():
    rng = np.random.default_rng(4)
    gentle = rng.normal(size=ROWS // 64)
    stormy = np.where(rng.random(ROWS // 64) < 0.03, 6.0, 0.0)
    stormy = (stormy - stormy.mean()) / stormy.std()
    profile = profile_of(stormy, rng, share=1.0)
    calm = profile_of(gentle, rng, share=1.0)
    tilt, _ = likelihood_ratios.score_tilts(profile.projection, profile.counts.cells)

    def worst(profile, effect):
        """Log evidence of a window within the strongest stretch of the reference."""
        phi = profile.dispersion.location
        window = profile.accumulator()
        values = effect.max() + rng.normal(size=64)
        window.update({"x": values})
        summary = profile.projection.summarise(window.take())
        whole = profile.summary
        return float(
            likelihood_ratios.of_mean(
                (whole.finite[None] / phi, whole.location[None] / phi),
                (summary.finite[None] / phi, summary.location[None] / phi),
                tilt,
            )[0, 0]
        )

    # As many blocks as there are can say no more than so much about one of them.
    most = np.log(profile.blocks)
    assert worst(profile, stormy) < most
    assert worst(calm, gentle) < most


def test_few_bins_of_few_rows_are_rarely_taken_as_dependent():
    rng = np.random.default_rng(7)
    pairs = Schema.from_tensors([Tensor("x", "FP32", (2,))])
    profile = fit(pairs, {"x": rng.normal(size=(4000, 2))})
    joint, nothing = profile.projection.part(slice(-1, None)), np.zeros(1)
    assert joint.used.tolist() == [2]
    found = 0
    for _ in range(1200):
        blocks = []
        for unusual in rng.binomial(4, 1 / 16, 39):
            bins = np.zeros((1, BINS))
            bins[0, :2] = unusual, 4 - unusual
            whole = np.array([4.0])
            blocks.append(Summary(4, whole, nothing, nothing, bins, np.zeros((1, 3))))
        found += bool(estimate(blocks, joint).shape[0] > 1)
    # 2.5 standard errors of a normal sum are exceeded in 0.6 % of cases, 7 of these.
    assert found <= 7


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_levels_shared_by_a_hundred_rows_are_no_evidence_of_another_scale(seed):
    rng = np.random.default_rng(seed)
    draw = dependent_rows.blocks(rng, 20)
    twenty = Schema.from_tensors([Tensor("x", "FP32", (20,))])
    profile = fit(twenty, {"x": draw(20_000)})
    window, found = profile.accumulator(), []
    for _ in range(100):
        monitor = Monitor(profile)
        window.update({"x": draw(500)})
        monitor.update(window.take())
        found.append(monitor.log_ratios()[0, :20, CHANNELS.index("scale")])
    # The mean of evidence is at most 1 without change.
    assert likelihood_ratios.log_mean(np.ravel(found)) < 0.0


def test_too_few_blocks_measure_nothing():
    rng = np.random.default_rng(5)
    spread = fit(SCHEMA, {"x": rng.normal(size=60)}).dispersion
    assert spread.location.tolist() == [1.0]
    assert spread.growth.tolist() == [0.0]
