"""The intervals of benchmarks' figures, beside published tables."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import figures

# Of a Poisson mean, 95 %, by what was counted (Garwood 1936; Pearson and Hartley,
# Biometrika Tables for Statisticians I, table 40).
GARWOOD = {
    0: (0.0, 3.689),
    1: (0.0253, 5.572),
    2: (0.242, 7.225),
    5: (1.623, 11.668),
    10: (4.795, 18.390),
    20: (12.217, 30.888),
    50: (37.11, 65.92),
}


@pytest.mark.parametrize("events", GARWOOD)
def test_the_interval_of_a_rate_is_that_of_the_published_table(events):
    found = figures.rate(events, 1.0)
    low, high = GARWOOD[events]
    assert found["value"] == events
    assert found["ci_low"] == pytest.approx(low, rel=2e-3)
    assert found["ci_high"] == pytest.approx(high, rel=2e-4)


def test_a_rate_is_by_exposure():
    once, tenfold = figures.rate(4, 1.0), figures.rate(4, 10.0)
    assert {key: value / 10 for key, value in once.items()} == pytest.approx(tenfold)
