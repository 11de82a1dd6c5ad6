"""A capacity search's report as the sidecar takes it from a file."""

from __future__ import annotations

import json
import time

import pytest
from pydantic import ValidationError

from exporter import capacity_report, catalogue
from exporter.collectors.runs import RunsSettings
from loadtests.capacity import report_model

WHOLE = {
    "format": "tritonwatch-load-capacity",
    "model": "m",
    "slo": "p99<20ms",
    "valid": True,
    "conclusion": "holds p99<20ms up to 100 requests/s",
    "capacity": {"requests_per_second": {"estimate": 100.0, "low": 90.0, "high": None}},
}


def written(tmp_path, **changes) -> str:
    file = tmp_path / "capacity.json"
    file.write_text(json.dumps({**WHOLE, **changes}))
    return str(file)


def test_both_sides_mean_the_same_format() -> None:
    assert capacity_report.FORMAT == report_model.FORMAT


def test_a_report_becomes_the_capacity_with_its_interval(tmp_path) -> None:
    found = capacity_report.capacity_of(written(tmp_path))
    assert (found.model, found.slo) == ("m", "p99<20ms")
    assert (found.low, found.requests_per_second, found.high) == (90.0, 100.0, 100.0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "x"}, "is no capacity report"),
        ({"valid": False}, "no valid result (holds p99<20ms"),
        ({"capacity": None}, "no valid result"),
        ({"capacity": {}}, "not whole"),
    ],
)
def test_a_report_that_says_nothing_to_rely_on_is_refused(
    tmp_path, changes, said
) -> None:
    with pytest.raises(ValidationError) as caught:
        RunsSettings(capacity_reports=(written(tmp_path, **changes),))
    assert said in str(caught.value)


def test_the_collector_knows_it_from_the_start_on(tmp_path) -> None:
    settings = RunsSettings(capacity_reports=(written(tmp_path),))
    samples = {
        sample.labels: sample.value
        for sample in settings.collector(tuple, time.monotonic).collect()
        if sample.spec is catalogue.CAPACITY
    }
    assert samples == {
        ("m", "p99<20ms", "estimate"): 100.0,
        ("m", "p99<20ms", "low"): 90.0,
        ("m", "p99<20ms", "high"): 100.0,
    }
