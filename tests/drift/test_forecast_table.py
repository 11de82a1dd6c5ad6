"""The page's table of forecasts is the one that was measured, and what it says of it holds."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from passages import page_with

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "forecast_coverage.py"


@pytest.fixture(scope="module")
def made():
    spec = importlib.util.spec_from_file_location("forecast_coverage", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(made):
    return [json.loads(line) for line in made.MEASURED.read_text("utf-8").splitlines()]


def test_the_table_is_the_one_that_was_measured(made):
    page = made.PAGE.read_text("utf-8")
    shown = made.table(made.MEASURED.read_text("utf-8"))
    assert page_with(made.PASSAGE, shown, page) == page


def test_intervals_cover_what_they_say_but_where_the_page_says_they_do_not(made):
    too_narrow = {
        ("simulated, correlation 0.9", 40),
        ("simulated, correlation 0.9", 80),
        ("simulated, correlation 0.9", 160),
        ("flights, days", 40),
        ("flights, days", 80),
    }
    lines = [line for line in measured(made) if line["kind"] == "decay"]
    assert len(lines) == 15
    for line in lines:
        least = 0.70 if (line["noise"], line["windows"]) in too_narrow else 0.90
        assert line["dated"] >= 100, line
        assert line["covered"] / line["dated"] >= least, line


def test_real_days_that_only_wander_seldom_get_a_date(made):
    lines = [line for line in measured(made) if line["kind"] == "itself"]
    dated, looks = (sum(line[key] for line in lines) for key in ("dated", "series"))
    assert (dated, looks) == (118, 1560)
    assert f"{dated} of {looks:,}" in made.PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", ["flights", "weather"])
def test_the_interval_covers_a_decay_under_real_noise(made, name):
    rng = np.random.default_rng([3, len(name)])
    columns = [made.without_year(v) for v in made.daily_means(name).values()]
    found = [made.covered(made._stretch(columns, 160, rng), rng) for _ in range(60)]
    dated = [inside for inside in found if inside is not None]
    assert len(dated) >= 30
    # 90 % wanted; below 75 % of 30 or more has chance 1e-2 (binomial), far less of 60.
    assert np.mean(dated) >= 0.75
