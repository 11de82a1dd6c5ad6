"""Generating models appear over OTLP under the semantic conventions' names, too."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.resources import Resource

from exporter import catalogue
from exporter.histograms.histogram import Histogram
from exporter.output.otlp import Generation, metrics_data
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
    generation = Generation("triton.example:8001", {"chat*": "chat"})
    data = metrics_data(samples, Resource({}), 5, 9, generation)
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
        "server.address": "triton.example",
        "server.port": 8001,
    }
    same = next(p for p in ours.data.data_points if p.attributes["model"] == "llm")
    for what in ("count", "sum", "scale", "positive", "start_time_unix_nano"):
        assert getattr(point, what) == getattr(same, what)
    assert (point.count, point.sum) == (3, 1.25)


def test_without_known_tokens_there_is_no_time_per_token():
    durations = sample(catalogue.REQUEST_DURATION, "llm", 1.0)
    assert set(sent(durations)) == {durations.spec.name}
    first = sample(catalogue.FIRST_RESPONSE, "llm", 0.5)
    assert set(sent(durations, first)) == {
        durations.spec.name,
        first.spec.name,
        "gen_ai.server.time_to_first_token",
        "gen_ai.server.request.duration",
    }


def test_what_a_model_is_for_is_configured():
    found = sent(sample(catalogue.FIRST_RESPONSE, "chat-7b", 0.5))
    (point,) = found["gen_ai.server.time_to_first_token"].data.data_points
    assert point.attributes["gen_ai.operation.name"] == "chat"


@pytest.mark.parametrize(
    ("target", "address", "port"),
    [
        ("https://models.example/v1", "models.example", None),
        ("[::1]:8001", "::1", 8001),
        ("", None, None),
    ],
)
def test_the_server_is_where_requests_go(target, address, port):
    found = Generation(target).attributes("llm", "3")
    assert found.get("server.address") == address
    assert found.get("server.port") == port


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
