"""Score and reports of an efficiency curve and of a pair of models."""

from __future__ import annotations

import json

import pytest

from loadtests.efficiency import efficiency_report
from loadtests.efficiency.efficiency_curve import score
from loadtests.efficiency.efficiency_report import (
    EfficiencyLevel,
    EfficiencyReport,
    Interval,
    LevelPower,
    PairReport,
)
from loadtests.report.efficiency_document import curve_document, pair_document
from pages import page_html, page_text
from pages.blocks import Verdict

RENDERERS = (page_html.render, page_text.render)


def level(name, load, rate, watts, boundary="gpu"):
    joules = (
        efficiency_report.ratio_of_sums([watts] * 6, [rate] * 6, seed=1)
        if rate
        else None
    )
    return EfficiencyLevel(
        name=name,
        load_ratio=load,
        offered_per_second=rate,
        inferences_per_second=rate,
        miss_ratio=0.0,
        power=(
            LevelPower(
                boundary=boundary,
                watts=watts,
                known=True,
                joules_per_inference=joules,
                inferences_per_second_per_watt=rate / watts,
            ),
        ),
    )


def report(source):
    levels = tuple(
        level(
            f"{percent} %" if percent else "idle", percent / 100, 10.0 * percent, watts
        )
        for percent, watts in zip(
            range(100, -1, -10), range(300, 190, -10), strict=True
        )
    )
    return EfficiencyReport(
        models=("m",),
        maximum_per_second=1000.0,
        calibrations=(990.0, 1000.0, 1000.0),
        concurrency=8,
        level_seconds=10.0,
        sources={"gpu": source},
        descriptions={"gpu": "one board"},
        levels=levels,
        score={"gpu": score(levels, "gpu")},
        seed=1,
        valid=True,
        reasons=(),
        versions={},
        hardware={},
    )


def test_the_score_is_all_rates_over_all_powers_idle_included():
    found = report("nvml")
    assert found.score["gpu"] == pytest.approx(5500 / 2750)
    assert score(found.levels, "host") == 0.0


def test_the_report_shows_every_level_and_says_when_power_is_only_modelled():
    measured, modelled = report("nvml"), report("model")
    for told in (render(curve_document(measured)) for render in RENDERERS):
        assert "not measured" not in told
        assert "90 %" in told
        assert "idle" in told
    for told in (render(curve_document(modelled)) for render in RENDERERS):
        assert "not measured" in told
    assert "<svg" in page_html.render(curve_document(measured))
    assert json.loads(measured.model_dump_json())["format"].endswith("efficiency")


def pair(speed_up, energy, accuracy, **changes):
    return PairReport(
        **{
            "reference": "fp32",
            "candidate": "int8",
            "pairs": 10,
            "block_seconds": 2.0,
            "concurrency": 4,
            "speed_up": speed_up,
            "energy_ratio": {"gpu": energy},
            "accuracy": {"fp32": 0.97, "int8": 0.96},
            "accuracy_change": accuracy,
            "rows": 500,
            "sources": {"gpu": "nvml"},
            "descriptions": {},
            "seed": 1,
            "valid": True,
            "reasons": (),
            "versions": {},
            "hardware": {},
            **changes,
        }
    )


def between(low, high):
    middle = None if low is None else (low + high) / 2
    return Interval(estimate=middle or 1.0, low=low, high=high)


HALF, SAME, MORE = between(0.4, 0.6), between(0.9, 1.2), between(1.5, 1.9)
NO_LOSS, LOSS = between(-0.01, 0.02), between(-0.03, -0.01)


@pytest.mark.parametrize(
    ("figures", "tone", "said"),
    [
        ((MORE, HALF, NO_LOSS), "good", ["faster", "less energy"]),
        ((MORE, HALF, LOSS), "note", ["faster", "less energy", "less accurate"]),
        ((HALF, SAME, LOSS), "bad", ["slower", "less accurate"]),
        ((SAME, MORE, NO_LOSS), "bad", ["more energy"]),
        ((SAME, SAME, NO_LOSS), "doubt", ["no difference is shown"]),
        ((between(None, None), SAME, NO_LOSS), "doubt", ["no difference is shown"]),
    ],
)
def test_a_page_of_two_models_begins_with_what_their_intervals_show(
    figures, tone, said
):
    first = pair_document(pair(*figures)).blocks[0]
    assert isinstance(first, Verdict)
    assert first.tone == tone
    words = {"faster", "slower", "less energy", "more energy", "less accurate"}
    assert {word for word in words if word in first.text} == set(said) & words
    assert all(word in first.text for word in said)


def test_a_page_of_two_models_speaks_of_no_curve():
    modelled = pair(MORE, HALF, NO_LOSS, sources={"gpu": "model"})
    text = page_text.render(pair_document(modelled))
    assert "not measured" in text
    assert "curve" not in text


def test_an_invalid_page_of_two_models_concludes_nothing():
    found = pair(MORE, HALF, LOSS, valid=False, reasons=("the machine was busy",))
    verdicts = [b for b in pair_document(found).blocks if isinstance(b, Verdict)]
    assert [v.text for v in verdicts] == ["INVALID: the machine was busy"]
