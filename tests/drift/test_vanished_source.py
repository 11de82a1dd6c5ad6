"""What the reference never showed is named, also where the reference itself moves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drift_command import told
from drifting_data import SETTINGS, window_of

from drift.alarms.monitor import Monitor
from drift.features import Feature, Schema, Tensor
from drift.fitting import ProfileBuilder
from drift.judgement import judge
from drift.reference import Profile

SCHEMA = Schema(
    (Tensor("x", "FP32", (1,)), Tensor("c", "INT64", (1,))),
    (Feature("x", "x", 0), Feature("source", "c", 0, "categorical")),
)
DAYS = 240


def day(rng, share, rows=100):
    source = np.where(rng.random(rows) < share, 3, rng.integers(0, 3, rows))
    return {"x": rng.normal(size=(rows, 1)), "c": source[:, None]}


def trending(rng, bins=24):
    """The reference of a source whose share of the rows grows from 15 to 49 %."""
    builder = ProfileBuilder(SCHEMA)
    for number in range(DAYS):
        builder.add(day(rng, 0.15 + 0.34 * number / DAYS))
    return Profile.from_bytes(replace(builder.build(), bins=bins).to_bytes())


@pytest.mark.parametrize("bins", [16, 24])
def test_a_source_that_vanishes_after_a_trend_is_named_within_two_months(bins):
    rng = np.random.default_rng(1)
    profile = trending(rng, bins)
    monitor = Monitor(profile, SETTINGS)
    raised = []
    for number in range(60):
        verdict = monitor.update(window_of(profile, day(rng, 0.0)))
        if verdict.raised:
            raised.append((number, verdict.culprits[0]))
    ((_, culprit),) = raised
    assert (culprit.feature, culprit.channel) == ("source", "range")
    assert culprit.bins[0].label == "3"
    assert culprit.bins[0].since == 0.0


@pytest.mark.parametrize("share", [0.13, 0.3, 0.55])
def test_shares_that_the_reference_showed_or_nearly_are_not_named(share):
    rng = np.random.default_rng(2)
    profile = trending(rng)
    monitor = Monitor(profile, SETTINGS)
    verdicts = [
        monitor.update(window_of(profile, day(rng, share))).raised for _ in range(60)
    ]
    assert not any(verdicts)


def test_one_stretch_without_the_source_is_a_storm_and_no_drift():
    rng = np.random.default_rng(3)
    profile = trending(rng)
    rows = int(profile.dispersion.reach_rows)
    storm = window_of(profile, day(rng, 0.0, rows))
    assert judge(profile, storm).outcome != "drift"


def test_a_single_look_at_months_without_the_source_says_so():
    rng = np.random.default_rng(4)
    profile = trending(rng)
    counts = window_of(profile, day(rng, 0.0, 9000))
    found = judge(profile, counts)
    assert found.changed[0].channel == "range"
    said = told(found, profile, counts)
    assert "its distribution is unlike every stretch of the reference" in said
