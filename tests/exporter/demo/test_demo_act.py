"""When the demo's scenario begins."""

from __future__ import annotations

import pytest

from exporter.demo.demo_line import Line
from exporter.demo.demo_scenarios import HEALTHY_WITHIN_SECONDS, Act

OF_IT = 'model="digits_fp32",version="1",dataset="held_out"'
USABLE = f"triton_golden_usable{{{OF_IT}}} 1\n"
SCORE = f'triton_golden_score_ratio{{{OF_IT},metric="accuracy"}} 0.971\n'
FAILING = f'triton_golden_failing{{{OF_IT},check="labels"}} 1\n'
FINE = FAILING.replace("} 1", "} 0")


@pytest.mark.parametrize(
    ("pages", "wanted"),
    [
        ([], False),
        ([""], False),
        ([USABLE], False),
        ([USABLE + SCORE + FAILING], False),
        ([USABLE + SCORE + FINE], True),
        ([USABLE + SCORE], True),
        ([USABLE + SCORE, ""], True),
        ([USABLE.replace(" 1", " 0") + SCORE], False),
    ],
)
def test_a_line_has_shown_the_golden_accuracy_once_a_page_had_it(pages, wanted):
    line = Line()
    for number, page in enumerate(pages):
        line.of(page.encode(), float(number))
    assert line.golden_was_correct is wanted


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
