"""When the demo's scene begins."""

from __future__ import annotations

import pytest

from exporter.demo.demo_readings import Reader
from exporter.demo.demo_scenarios import HEALTHY_WITHIN_SECONDS, Act

OF_IT = 'model="digits_fp32",version="1",dataset="held_out"'
USABLE = f"triton_golden_usable{{{OF_IT}}} 1\n"
SCORE = f'triton_golden_score_ratio{{{OF_IT},metric="accuracy"}} 0.971\n'
FAILING = f'triton_golden_failing{{{OF_IT},check="labels"}} 1\n'
FINE = FAILING.replace("} 1", "} 0")

NOTHING_WRONG = {"models": [], "findings": []}


@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        ("", False),
        (USABLE, False),
        (USABLE + SCORE + FAILING, False),
        (USABLE + SCORE + FINE, True),
        (USABLE + SCORE, True),
        (USABLE.replace(" 1", " 0") + SCORE, False),
    ],
)
def test_answers_are_correct_once_a_score_is_there_and_no_check_fails(page, wanted):
    assert Reader().read(page.encode(), NOTHING_WRONG).golden_correct is wanted


@pytest.mark.parametrize(
    ("seconds", "shown", "wanted"),
    [
        (5.9, True, False),
        (6.0, True, True),
        (6.0, False, False),
        (6.0 + HEALTHY_WITHIN_SECONDS - 0.1, False, False),
        (6.0 + HEALTHY_WITHIN_SECONDS, False, True),
    ],
)
def test_the_scenario_waits_for_a_correct_line_but_not_for_ever(seconds, shown, wanted):
    act = Act(6.0, lambda: "")
    assert act.is_due(seconds, golden_was_correct=shown) is wanted
