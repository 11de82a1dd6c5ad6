"""Generating models appear over OTLP under the semantic conventions' names, too."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.resources import Resource

from exporter import catalogue
from exporter.histograms.histogram import Histogram
from exporter.output.otlp import metrics_data
from exporter.samples import HistogramSample, Sample

EXPECTED = {
    "gen_ai.server.time_to_first_token": catalogue.FIRST_RESPONSE,
    "gen_ai.server.time_per_output_token": catalogue.TIME_PER_TOKEN,
    "gen_ai.server.request.duration": catalogue.REQUEST_DURATION,
}


def sample(spec, model, *seconds):
    histogram = Histogram()
    for value in seconds:
        histogram.record(value)
    return HistogramSample(spec, histogram, (model, "3"))


def sent(*samples):
    data = metrics_data(samples, Resource({}), 5, 9)
    (scope,) = data.resource_metrics[0].scope_metrics
    return {metric.name: metric for metric in scope.metrics}


@pytest.mark.parametrize(("name", "spec"), EXPECTED.items(), ids=EXPECTED)
def test_a_model_whose_responses_are_tokens_has_the_conventions_names(name, spec):
    samples = [sample(each, "llm", 0.25, 0.5, 0.5) for each in EXPECTED.values()]
    found = sent(*samples, sample(catalogue.REQUEST_DURATION, "unary", 0.1))
    ours, theirs = found[spec.name], found[name]
    assert theirs.unit == "s"
    (point,) = theirs.data.data_points
    assert dict(point.attributes) == {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "triton",
        "gen_ai.request.model": "llm",
        "gen_ai.response.model": "llm:3",
    }
    same = next(p for p in ours.data.data_points if p.attributes["model"] == "llm")
    for what in ("count", "sum", "scale", "positive", "start_time_unix_nano"):
        assert getattr(point, what) == getattr(same, what)
    assert (point.count, point.sum) == (3, 1.25)


def test_without_known_tokens_no_time_is_said_to_be_a_tokens():
    durations = sample(catalogue.REQUEST_DURATION, "llm", 1.0)
    first = sample(catalogue.FIRST_RESPONSE, "llm", 0.5)
    assert set(sent(durations, first)) == {durations.spec.name, first.spec.name}


def test_the_start_of_a_total_that_outlives_the_process_is_unknown():
    found = sent(
        Sample(catalogue.CACHE, 4e6, ("m", "1", "hit")),
        Sample(catalogue.INFERENCES, 7, ("m", "1")),
    )
    starts = {
        name: [point.start_time_unix_nano for point in metric.data.data_points]
        for name, metric in found.items()
    }
    assert starts == {catalogue.CACHE.name: [0], catalogue.INFERENCES.name: [5]}
