"""Reports of capacity searches, as the sidecar reads them."""

from __future__ import annotations

import json

import pytest
from accesses import access_to
from pydantic import ValidationError

from exporter import catalogue
from exporter.features.runs import run_board
from exporter.features.runs.runs_collector import RunsSettings
from loadtests.capacity import search_report

WHOLE = {
    "format": "tritonwatch-load-capacity",
    "model": "m",
    "slo": "p99<20ms",
    "valid": True,
    "conclusion": "meets p99<20ms up to 100 requests/s",
    "capacity": {
        "requests_per_second": {"estimate": 100.0, "low": 90.0, "high": 110.0}
    },
    "ending": "precise",
    "started_at": 1_000.0,
    "spent_seconds": 60.0,
}


def written(tmp_path, **changes) -> str:
    file = tmp_path / "capacity.json"
    file.write_text(json.dumps({**WHOLE, **changes}))
    return str(file)


def test_both_sides_mean_the_same_format() -> None:
    assert run_board.FORMAT == search_report.FORMAT


@pytest.mark.parametrize("missing", ["low", "high"])
def test_an_open_interval_is_not_closed_at_the_estimate(missing) -> None:
    ends = {**WHOLE["capacity"]["requests_per_second"], missing: None}
    notice = run_board.notice_of({**WHOLE, "capacity": {"requests_per_second": ends}})
    assert notice.verdict == "invalid"
    assert notice.reason == WHOLE["conclusion"]


@pytest.mark.parametrize(
    ("changes", "verdict", "reason"),
    [
        ({"valid": False, "reasons": ["a", "b"]}, "invalid", "a; b"),
        ({"valid": False, "reasons": ["x" * 300]}, "invalid", "x" * 199 + "…"),
        ({"valid": False, "ending": "no_rate_holds"}, "invalid", WHOLE["conclusion"]),
        ({"ending": "every_rate_holds"}, "every_rate_holds", WHOLE["conclusion"]),
        ({"ending": "no_rate_holds"}, "no_rate_holds", WHOLE["conclusion"]),
        ({"ending": "stopped", "capacity": None}, "invalid", WHOLE["conclusion"]),
    ],
)
def test_a_report_without_a_valid_capacity_becomes_its_verdict_and_reason(
    changes, verdict, reason
) -> None:
    notice = run_board.notice_of({**WHOLE, **changes})
    assert (notice.verdict, notice.reason) == (verdict, reason)
    assert notice.requests_per_second is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "x"}, "is not a capacity report"),
        ({"valid": False}, "no valid capacity (meets p99<20ms"),
        ({"capacity": None}, "no valid capacity"),
        ({"capacity": {}}, "incomplete"),
        ({"conclusion": "x" * (17 << 20)}, "the maximum is 16777216"),
    ],
    ids=["format", "invalid", "none", "empty", "large"],
)
def test_a_report_that_says_nothing_to_rely_on_is_refused(
    tmp_path, changes, said
) -> None:
    with pytest.raises(ValidationError) as caught:
        RunsSettings(capacity_reports=(written(tmp_path, **changes),))
    assert said in str(caught.value)


def test_the_collector_knows_it_from_the_start_on(tmp_path) -> None:
    settings = RunsSettings(capacity_reports=(written(tmp_path),))
    shown = {
        (sample.spec.name, *sample.labels): sample.value
        for sample in settings.build(access_to(None)).collect()
        if sample.spec in {catalogue.CAPACITY, catalogue.CAPACITY_FOUND}
    }
    capacity, key = catalogue.CAPACITY.name, ("m", "p99<20ms")
    assert shown == {
        (capacity, *key, "estimate"): 100.0,
        (capacity, *key, "low"): 90.0,
        (capacity, *key, "high"): 110.0,
        (catalogue.CAPACITY_FOUND.name, *key): 1_060.0,
    }
