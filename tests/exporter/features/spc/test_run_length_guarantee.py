"""The central guarantee: a bound that is shown holds in nine learnt baselines of ten."""

from __future__ import annotations

import math

import chart_runs
import numpy as np
import pytest
from chart_runs import PROCESSES, Process, learnt, true_run_lengths
from chart_scene import Scene, score, signal

from exporter.features.spc.control_charts import Cusum, Ewma, Shewhart, guarded_limit

BASELINES, RUNS, SAMPLES = 60, 20, 1_500
WANTED = 300.0
CHANCE = 0.10 + 3.0 * math.sqrt(0.10 * 0.90 / BASELINES)


def baselines(name, seed=20261):
    """Return whether each bound is shown, and the true run length; 600 samples are learnt."""
    rng = np.random.default_rng(seed)
    settings = chart_runs.settings(learn_samples=600, in_control_samples=WANTED)
    signals = learnt(Process(rng, (BASELINES,), **PROCESSES[name]), settings)
    process = Process(rng, (BASELINES, RUNS), **PROCESSES[name])
    shown = np.array([signal.refused == "none" for signal in signals])
    return shown, true_run_lengths(signals, process, SAMPLES)


@pytest.mark.parametrize("name", ["normal", "AR(0.5)", "AR(0.9)"])
def test_a_bound_holds_in_nine_baselines_of_ten(name) -> None:
    shown, truth = baselines(name)
    assert shown.mean() > 0.75
    assert (truth[shown] < WANTED).mean() <= CHANCE


@pytest.mark.parametrize("name", ["t5", "daily_wave", "spells_of_spread"])
def test_where_false_alarms_come_oftener_the_bound_is_refused(name) -> None:
    shown, truth = baselines(name)
    assert (truth < WANTED).mean() > CHANCE
    assert (shown & (truth < WANTED)).mean() <= 0.05


def test_most_baselines_whose_level_has_spells_get_no_bound() -> None:
    """Under noise of twice their height; in the others the bound may not hold."""
    shown, _ = baselines("spells_of_level")
    assert shown.mean() < 0.35


@pytest.mark.parametrize("chart", [Shewhart(), Ewma(0.2), Cusum(0.5, 0.5)], ids=str)
def test_a_guarded_limit_holds_the_run_length_and_is_hardly_wider(chart) -> None:
    limit, holds = guarded_limit(chart, 2000.0, "lower", 0.1, 1.1)
    assert holds
    # An error of the mean counts towards the side that is watched.
    assert 2000 < chart.run_length(limit, -0.1, "lower", 1.1) < 2060


def test_a_fast_initial_response_shortens_the_way_to_an_alarm() -> None:
    def looks(value, *, fast):
        chart = {"kind": "cusum", "fast_initial_response": fast}
        scene = Scene(signal(charts=[chart]))
        scene.look(score(value))
        first = scene.value("triton_spc_alarm", "cusum")
        count = 1
        while not scene.value("triton_spc_alarm", "cusum"):
            scene.look(score(value))
            count += 1
        assert not first
        return count

    assert looks(0.98, fast=True) < 0.7 * looks(0.98, fast=False)
    assert looks(0.96, fast=True) < 0.7 * looks(0.96, fast=False)


@pytest.mark.parametrize(("side", "other"), [("upper", "lower"), ("lower", "upper")])
@pytest.mark.parametrize("learnt", [False, True], ids=["known mean", "learnt mean"])
def test_page_hinkley_reports_a_rise_above_and_a_fall_below(
    side, other, learnt
) -> None:
    charts = [{"kind": "page_hinkley"}]
    changes = {"baseline": None, "learn_samples": 200} if learnt else {}
    rng = np.random.default_rng(5)
    before = rng.normal(0.97, 0.01, 200)
    step = 0.02 if side == "upper" else -0.02
    alarms = {}
    for watched in (side, other, "both"):
        scene = Scene(signal(charts=charts, sides=watched, **changes))
        for value in before:
            scene.look(score(value))
        assert scene.value("triton_spc_alarm", "page_hinkley") == 0
        for _ in range(30):
            scene.look(score(0.97 + step))
        alarms[watched] = scene.value("triton_spc_alarm", "page_hinkley")
    assert alarms == {side: 1, other: 0, "both": 1}
    statistic = scene.value("triton_spc_statistic", "page_hinkley")
    assert (statistic > 0) == (side == "upper")
