"""Settings of objectives on streamed answers: first responses, gaps, goodput."""

from __future__ import annotations

import pytest

from exporter.config.configuration import parse
from exporter.errors import ConfigError
from exporter.features.slo.objectives import LatencyObjective, PresetObjective


@pytest.mark.parametrize(
    ("collectors", "has"),
    [
        ("", "no limits"),
        ("collectors: [{kind: traces, limits: {b: {total_seconds: 1}}}]\n", "b"),
    ],
)
def test_goodput_under_limits_that_are_not_there_is_refused(collectors, has) -> None:
    slo = "slos: [{name: s, kind: goodput, limits: a, objective_ratio: 0.9}]"
    with pytest.raises(ConfigError, match=f"the limits 'a' .* traces has {has}"):
        parse((collectors + slo).encode(), "f.yaml", {})


def configured(slo: str):
    return parse(f"slos: [{{name: s, {slo}}}]".encode(), "f.yaml", {}).slos


@pytest.mark.parametrize(
    "slo",
    [
        "kind: first_response, objective_ratio: 0.9, threshold_seconds: 0.1",
        "kind: response_gap, objective_ratio: 0.9, threshold_seconds: 0.1",
        "kind: preset, preset: chat",
    ],
)
def test_streams_are_judged_of_production_alone(slo) -> None:
    assert configured(slo)
    with pytest.raises(ConfigError, match=r"found .*source probes"):
        configured(f"{slo}, source: probes")


@pytest.mark.parametrize(
    ("preset", "first", "gap"), [("chat", 0.5, 0.05), ("completion", 2.0, 0.2)]
)
def test_presets_of_streams_judge_first_responses_and_gaps(preset, first, gap) -> None:
    objectives = PresetObjective(name="llm", preset=preset, models="l*").expand()
    found = [
        (o.name, o.kind, o.objective_ratio, o.threshold_seconds, o.models)
        for o in objectives
        if isinstance(o, LatencyObjective)
    ]
    assert found == [
        ("llm-first-response", "first_response", 0.99, first, "l*"),
        ("llm-response-gap", "response_gap", 0.95, gap, "l*"),
    ]
