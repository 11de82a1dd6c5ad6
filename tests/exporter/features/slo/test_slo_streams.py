"""Settings of objectives on streamed answers: first responses, gaps, goodput."""

from __future__ import annotations

import pytest

from exporter import catalogue
from exporter.config.configuration import parse
from exporter.errors import ConfigError
from exporter.features.slo.objectives import LatencyObjective, PresetObjective
from exporter.features.slo.slo_events import EventCounter
from exporter.histograms.histogram import Histogram
from exporter.samples import HistogramSample


@pytest.mark.parametrize(
    ("kind", "source", "spec"),
    [
        ("first_response", "requests", catalogue.FIRST_RESPONSE),
        ("response_gap", "requests", catalogue.RESPONSE_GAP),
        ("first_response", "probes", catalogue.PROBE_FIRST_RESPONSE),
        ("response_gap", "probes", catalogue.PROBE_RESPONSE_GAP),
    ],
)
def test_objectives_on_streams_count_first_responses_or_gaps(
    kind, source, spec
) -> None:
    def exposed(*seconds: float) -> list[HistogramSample]:
        histogram = Histogram()
        histogram.record_many(seconds)
        return [
            HistogramSample(other, histogram, ("llm", "1", "http", "synthetic"))
            for other in (catalogue.REQUEST_DURATION, catalogue.PROBE_DURATION, spec)
        ]

    (objective,) = configured(
        f"kind: {kind}, objective_ratio: 0.9, threshold_seconds: 0.1, source: {source}"
    )
    counter = EventCounter(objective)
    counter.add([], 0)
    counter.add(exposed(0.05, 0.09, 0.2), 5)
    assert (counter.good, counter.bad) == (2, 1)


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


def configured(slo: str):
    return parse(f"slos: [{{name: s, {slo}}}]".encode(), "f.yaml", {}).slos


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
