"""Presets and what does not fit of objectives in a configuration."""

from __future__ import annotations

import pytest

from exporter.config.configuration import parse
from exporter.errors import ConfigError
from exporter.features.slo.objectives import (
    PresetObjective,
    SignalObjective,
    expanded,
)


@pytest.mark.parametrize(
    ("preset", "wanted"),
    [
        (
            "interactive",
            [("web-p95", "latency", 0.95, 0.1), ("web-p99", "latency", 0.99, 0.5)],
        ),
        (
            "realtime",
            [
                ("web-p95", "latency", 0.95, 0.05),
                ("web-availability", "availability", 0.999, None),
            ],
        ),
        (
            "chat",
            [
                ("web-first-response", "first_response", 0.99, 0.5),
                ("web-response-gap", "response_gap", 0.95, 0.05),
            ],
        ),
        (
            "completion",
            [
                ("web-first-response", "first_response", 0.99, 2.0),
                ("web-response-gap", "response_gap", 0.95, 0.2),
            ],
        ),
    ],
)
def test_a_preset_is_its_objectives(preset, wanted) -> None:
    settings = {"models": "l*", "source": "probes"}
    found = expanded((PresetObjective(name="web", preset=preset, **settings),))
    assert {(o.models, o.source) for o in found} == {("l*", "probes")}
    assert wanted == [
        (o.name, o.kind, o.objective_ratio, getattr(o, "threshold_seconds", None))
        for o in found
    ]


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (
            {"preset": "throughput", "per_second": 7.0},
            {"metric": "triton_inferences_total", "at_least": 7.0},
        ),
        (
            {"preset": "energy", "joules_per_inference": 2.0, "boundary": "host"},
            {
                "metric": "triton_inference_energy_joules",
                "labels": {"boundary": "host", "basis": "full"},
                "at_most": 2.0,
            },
        ),
    ],
)
def test_a_preset_of_readings_bounds_one_metric(settings, wanted) -> None:
    (objective,) = PresetObjective(name="web", models="l*", **settings).expand()
    name = f"web-{settings['preset']}"
    assert objective == SignalObjective(
        name=name, objective_ratio=0.99, models="l*", **wanted
    )


@pytest.mark.parametrize(
    ("collectors", "has"),
    [
        ("", "no limits"),
        ("collectors: [{kind: traces, limits: {b: {total_seconds: 1}}}]\n", "b"),
    ],
)
def test_goodput_under_limits_that_are_not_there_is_refused(collectors, has) -> None:
    slo = "slos: [{name: s, kind: goodput, limits: a, objective_ratio: 0.9}]"
    with pytest.raises(ConfigError, match=f"the limits 'a'; .* traces has {has}"):
        parse((collectors + slo).encode(), "f.yaml", {})
