"""The page and the lines of a capacity report, of every ending."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from exporter.cli import main
from loadtests.capacity.search_report import CapacityReport, exit_of
from loadtests.report.capacity_document import document
from loadtests.report.comparison_report import capacities_compared, sentence
from pages import page_html, page_text


def level(rate: float, share: float) -> dict:
    return {
        "requests_per_second": rate, "runs": 3, "requests": 1800, "throughput": rate,
        "throughput_deviation": 1.0, "shares": {"p99<20ms": share},
        "share_deviations": {"p99<20ms": None}, "p99_deviation": None,
        "latency": {"p50": 0.005, "p90": 0.01, "p95": 0.02, "p99": None, "p999": None},
        "phases": None, "mean_batch": None, "busy": None, "server_cpu": None,
        "sender_cpu": 0.1, "warmup_seconds": 0.5, "settled": True,
        "runs_with_reasons": 0,
    }  # fmt: skip


def report(low=90.0, high=110.0, estimate=100.0, **changes) -> CapacityReport:
    capacity = {
        "requests_per_second": {"estimate": estimate, "low": low, "high": high},
        "by_term": {"p99<20ms": estimate}, "dispersion": 12.0, "blocks": 20,
    }  # fmt: skip
    whole = {
        "model": "m <1>", "slo": "p99<20ms", "conclusion": "holds it", "valid": True,
        "ending": "budget", "capacity": capacity,
        "reference": {"start_p50": 0.005},
        "levels": [level(90, 0.0), level(105, 0.02)],
        "saturation": {"resource": "queue", "evidence": "it waits"},
        "repetitions": 6, "rejected_runs": 0, "spent_seconds": 100.0, "started_at": 1e9,
        "seed": 1, "protocol": "grpc", "address": "a:1", "payload_sha256": "0" * 64,
        "schedule_sha256": "1" * 64, "settings": {}, "hardware": {}, "versions": {},
    }  # fmt: skip
    return CapacityReport.model_validate({**whole, **changes})


@pytest.mark.parametrize(
    ("changes", "status", "tone"),
    [
        ({}, 0, "good"),
        ({"low": None, "high": None}, 3, "note"),
        ({"low": None}, 3, "note"),
        ({"valid": False, "reasons": ["noise"]}, 3, "bad"),
        ({"ending": "no_rate_holds", "capacity": None, "levels": []}, 1, "note"),
        ({"ending": "every_rate_holds", "capacity": None}, 1, "note"),
        (
            {"ending": "no_rate_holds", "valid": False, "reasons": ["noise"]},
            3,
            "bad",
        ),
    ],
)
def test_every_ending_has_its_status_its_tone_and_its_sentence(
    tmp_path, changes, status, tone
) -> None:
    found = report(**changes)
    assert exit_of(found) == status
    (tmp_path / "c.json").write_text(found.model_dump_json())
    assert main(["load", "report", str(tmp_path / "c.json")]) == status
    html = page_html.render(document(found))
    assert f'class="verdict {tone}"' in html
    assert "m &lt;1&gt;" in html
    assert "<script" not in html
    assert "nan" not in html.split("</style>")[1]
    lines = page_text.render(document(found))
    assert "holds it" in lines
    assert ("INVALID: noise" in lines) == bool(found.reasons)


def test_less_capacity_is_a_regression_and_little_is_known_of_wide_intervals() -> None:
    def compared(before, after):
        return capacities_compared(before, after, tolerance_ratio=0.05)

    narrow = {"low": 98.0, "high": 102.0}
    less = {"low": 78.0, "high": 82.0, "estimate": 80.0}
    assert compared(report(**narrow), report(**less)).call == "worse"
    assert compared(report(**less), report(**narrow)).call == "better"
    assert compared(report(**narrow), report(**narrow)).call == "same"
    wide = report(low=50.0, high=200.0)
    assert compared(wide, wide).call == "unknown"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model": "bert"}, "models differ: m <1> and bert"),
        ({"protocol": "http"}, "protocols differ: grpc and http"),
        ({"payload_sha256": "b"}, "they sent different payloads"),
        ({"slo": "p99<9ms"}, "objectives differ: p99<20ms and p99<9ms"),
        ({"payload_sha256": "b", "seed": 2}, ""),
    ],
)
def test_capacities_of_other_requests_are_not_compared(changes, problem) -> None:
    reports = report(), report(low=28.0, high=32.0, estimate=30.0, **changes)
    found = capacities_compared(*reports, tolerance_ratio=0.05)
    assert found.problems == ((problem,) if problem else ())
    assert problem in sentence(found)
    assert found.call == ("unknown" if problem else "worse")


def test_a_report_with_a_key_too_many_is_refused() -> None:
    with pytest.raises(ValidationError):
        report(capasity=3)


def test_the_axis_of_misses_is_in_percent_and_begins_with_zero() -> None:
    page = page_html.render(document(report()))
    for label in (">0</text>", ">0.01</text>", ">1</text>", "allows 1 %"):
        assert label in page
    assert "1e-05" not in page
