"""The settings of charts have their effect, on the side that they are for."""

from __future__ import annotations

import numpy as np
import pytest
from chart_scene import Scene, score, signal


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
