"""Objectives of a load run in its report: pass or fail of each term, and lines in charts."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from load_runs import about, charts_of

from exporter.cli import main
from loadtests import result_file
from loadtests.report import run_document
from loadtests.report.objective_report import exit_of
from loadtests.report.run_report import report_of
from loadtests.result import Outcome, Requests, RunResult, Verdict
from pages import page_html, page_text

TRITONWATCH = str(Path(sys.executable).with_name("tritonwatch"))


def made(
    slo="",
    *,
    count=8000,
    errors=0,
    streamed=False,
    verdict=None,
    responses=3,
    goodput="",
) -> RunResult:
    """Latencies of about 4 ms, one of a hundred above 10 ms; `errors` in a row fail."""
    rng = np.random.default_rng(1)
    requests = Requests.empty(count)
    requests.intended[:] = np.linspace(0, 40, count, endpoint=False)
    requests.sent[:] = requests.intended + 1e-4
    requests.done[:] = requests.sent + 0.004 * rng.lognormal(0, 0.4, count)
    requests.outcome[:] = Outcome.OK
    requests.outcome[rng.choice(count, errors, replace=False)] = Outcome.ERROR
    if streamed:
        requests.first[:] = requests.sent + 0.001
        requests.responses[:] = responses
    profile = {"kind": "poisson", "requests_per_second": 200.0}
    return RunResult.of(
        about(profile=profile, slo=slo, goodput=goodput),
        requests,
        duration_seconds=40.0,
        sender_cpu_seconds=1.0,
        verdict=verdict,
    )


def test_each_term_has_its_measured_value_interval_and_limit() -> None:
    report = report_of(made("p99<20ms,p50<1ms,errors<0.5%", errors=16))
    assert [(o.term, o.passed) for o in report.objectives] == [
        ("p99<20ms", True),
        ("p50<1ms", False),
        ("errors<0.5%", True),
    ]
    p99, p50, errors = report.objectives
    assert p99.limit_seconds == 0.02
    assert p99.seconds is not None
    assert p99.seconds.low < p99.seconds.value < p99.seconds.high < 0.02
    assert p50.missed_ratio == 1.0
    assert errors.seconds is None
    assert errors.missed_ratio == pytest.approx(0.002)
    assert errors.missed_low < 0.002 < errors.missed_high
    assert errors.allowed_ratio == 0.005


def test_the_page_and_the_text_begin_with_the_verdict_and_each_term() -> None:
    report = report_of(made("p99<20ms,p50<1ms"))
    told = page_text.render(run_document.document(report))
    assert "OBJECTIVE MISSED: p50<1ms" in told
    assert told.index("OBJECTIVE MISSED") < told.index("VALID")
    [passed] = [line for line in told.splitlines() if line.strip().startswith("p99<20")]
    assert "PASS" in passed
    assert "20 ms" in passed
    [failed] = [line for line in told.splitlines() if line.strip().startswith("p50<1")]
    assert "FAIL" in failed
    html = page_html.render(run_document.document(report))
    assert html.index("OBJECTIVE MISSED") < html.index("VALID")
    assert "p50&lt;1ms" in html


def test_met_objectives_say_so_and_what_is_not_certain() -> None:
    report = report_of(made("p99<20ms,errors<0.1%"))
    assert run_document.objective_verdict(report) == (
        "good",
        "OBJECTIVE MET: p99<20ms, errors<0.1%",
    )
    p50 = report.objectives[0].seconds
    assert p50 is not None
    near = report_of(made(f"p99<{1e3 * p50.value + 0.001:.3f}ms"))
    tone, said = run_document.objective_verdict(near)
    assert tone == "note"
    assert "the limit is within the 95 % interval" in said


@pytest.mark.parametrize(
    ("slo", "count", "reason"),
    [
        ("p99<20ms", 1, "too few requests (1)"),
        ("errors<1%", 1, "too few requests (1)"),
        ("p99.9<20ms", 100, "100 requests show only that at most 3."),
    ],
)
def test_too_few_requests_prove_no_objective(tmp_path, slo, count, reason) -> None:
    result = made(slo, count=count)
    tone, said = run_document.objective_verdict(report_of(result))
    assert tone == "doubt"
    assert said.startswith("OBJECTIVE NOT PROVEN: not enough data")
    assert reason in said
    assert exit_of(result) == 3
    result_file.write(result, tmp_path / "run.json")
    assert main(["load", "report", str(tmp_path / "run.json")]) == 3
    told = page_text.render(run_document.document(report_of(result)))
    assert "not proven" in told
    assert "PASS" not in told


def test_requests_that_are_all_in_time_prove_it_though_the_quantile_has_no_interval() -> (
    None
):
    result = made("p99<20ms", count=500)
    # One slow spell makes the 99th percentile, well within the limit.
    result.requests.done[200:210] += 0.008
    [term] = report_of(result).objectives
    assert term.interval_unknown
    assert (term.passed, term.certain) == (True, True)
    assert exit_of(result) == 0


def test_a_miss_within_its_interval_is_uncertain() -> None:
    p50 = report_of(made("p50<1ms")).objectives[0].seconds
    near = report_of(made(f"p50<{1e3 * p50.value - 0.001:.3f}ms"))
    [term] = near.objectives
    assert (term.passed, term.certain) == (False, False)
    tone, said = run_document.objective_verdict(near)
    assert tone == "bad"
    assert said.startswith("OBJECTIVE MISSED")
    assert "uncertain: the limit is within the 95 % interval" in said
    _, said = run_document.objective_verdict(report_of(made("p50<1ms")))
    assert "uncertain" not in said


def test_numbers_that_are_not_valid_prove_no_objective() -> None:
    report = report_of(made("p99<20ms", verdict=Verdict(reasons=("noise",))))
    told = page_text.render(run_document.document(report))
    assert run_document.objective_verdict(report)[0] == "doubt"
    assert told.index("INVALID: noise") < told.index("OBJECTIVE NOT PROVEN")


def test_misses_beyond_the_percentile_make_its_value_infinite_not_unknown() -> None:
    report = report_of(made("p99<20ms", errors=200))
    [term] = report.objectives
    assert not term.passed
    assert term.seconds is None
    assert report.latency.p99.value is None
    assert report.from_send.p99.value is None
    assert report.latency.p50.value == pytest.approx(0.0041, rel=0.15)
    assert report.miss_ratio == pytest.approx(0.025)
    told = page_text.render(run_document.document(report))
    assert "no answer" in told


def test_streams_without_a_first_response_count_in_its_quantiles(tmp_path) -> None:
    slo = "ttft_p99<20ms,itl_p99<20ms"
    result = made(slo, streamed=True, errors=480)
    failed = result.requests.outcome == Outcome.ERROR
    result.requests.first[failed] = np.nan
    result.requests.responses[failed] = 0
    result = RunResult.of(
        result.about,
        result.requests,
        duration_seconds=40.0,
        sender_cpu_seconds=1.0,
    )
    report = report_of(result)
    for latency in (report.first_response, report.mean_gap, report.from_send):
        assert latency.p90.value is not None
        assert (latency.p99.value, latency.p99.high) == (None, None)
    assert [term.passed for term in report.objectives] == [False, False]
    summary = result_file.summary(result)
    for name in ("first_response", "mean_gap", "service"):
        assert summary[f"{name}_seconds"]["p99"]["value"] is None
    told = page_text.render(run_document.document(report))
    [tile] = [line for line in told.splitlines() if "p99 first response" in line]
    assert "no answer" in tile


def test_limits_are_lines_in_the_charts() -> None:
    slo = "p99<20ms,ttft_p99<5ms,itl_p95<9ms,errors<0.5%"
    report = report_of(made(slo, streamed=True, errors=3))
    charts = charts_of(report)
    marks = {
        title: [mark.text for mark in plot.marks if mark.y is not None]
        for title, plot in charts.items()
    }
    assert marks["Latency from the intended send"] == ["p99<20ms"]
    assert marks["Latency by percentile"] == ["p99<20ms"]
    assert marks["Time to the first response"] == ["ttft_p99<5ms"]
    assert marks["Time for each token or response after the first"] == ["itl_p95<9ms"]
    [missed] = [p for title, p in charts.items() if title.startswith("Missed")]
    assert [series.name for series in missed.series] == ["missed", "errors<0.5%"]


def test_a_run_without_an_objective_or_without_requests_has_no_verdict_on_one() -> None:
    assert report_of(made()).objectives == ()
    assert run_document.objective_verdict(report_of(made())) is None
    terms = report_of(made("p99<20ms,errors<1%", count=0)).objectives
    assert [term.passed for term in terms] == [None, None]


SINGLE = "every answer had a single response or token"


def test_gaps_of_answers_of_a_single_response_are_not_measured_and_not_met(
    tmp_path,
) -> None:
    slo = "p99<20ms,itl_p95<9ms"
    result = made(slo, streamed=True, responses=1, goodput="itl<9ms")
    report = report_of(result)
    latency, gap = report.objectives
    assert latency.passed
    assert (gap.passed, gap.seconds, gap.unmeasured) == (None, None, SINGLE)
    assert run_document.objective_verdict(report) == (
        "doubt",
        f"OBJECTIVE NOT MEASURED: itl_p95<9ms: {SINGLE}",
    )
    told = page_text.render(run_document.document(report))
    [row] = [line for line in told.splitlines() if line.strip().startswith("itl_p95")]
    assert "not measured" in row
    assert "0 µs" not in row
    assert f"goodput not measured: itl<9ms: {SINGLE}" in told
    assert report.goodput.ratio is None
    assert report.goodput.unmeasured == f"itl<9ms: {SINGLE}"
    assert exit_of(result) == 3
    missed = replace(result, about=replace(result.about, slo="p50<1ms,itl_p95<9ms"))
    assert exit_of(missed) == 1


def test_answers_without_a_gap_are_left_out_of_its_objective_and_counted() -> None:
    result = made("itl_p50<9ms", streamed=True)
    slow = result.requests
    slow.responses[: len(slow) * 3 // 4] = 1
    slow.done[: len(slow) * 7 // 8] += 0.1
    [term] = report_of(result).objectives
    assert term.passed is (term.missed_ratio <= 0.5)
    assert term.missed_ratio == pytest.approx(0.5, abs=0.01)
    assert term.seconds.value > 0
    assert term.without_gap == 6000
    told = page_text.render(run_document.document(report_of(result)))
    assert "itl_p50<9ms is not measured on 6000 of 8000 requests" in told
    assert " 0 µs" not in told


def test_every_form_of_a_report_has_the_same_p99(tmp_path) -> None:
    result = made("p99<20ms")
    report = report_of(result)
    [term] = report.objectives
    assert report.latency.p99.model_dump().items() >= term.seconds.model_dump().items()
    summary = result_file.summary(result)["latency_seconds"]
    assert summary["p99"]["value"] == term.seconds.value
    assert summary["p99"]["interval"] == [term.seconds.low, term.seconds.high]
    sent = result_file.summary(result)["service_seconds"]
    assert sent["p99"]["value"] == report.from_send.p99.value
    assert sent["mean"] == pytest.approx(
        np.mean(result.requests.done - result.requests.sent)
    )
    said = f"{term.seconds.value * 1e3:.4g} ms"
    told = page_text.render(run_document.document(report))
    assert told.count(said) == 3, "objective, headline, table"


def test_the_objective_is_kept_in_the_result_and_old_files_have_none(tmp_path) -> None:
    result_file.write(made("p99<20ms,p50<1ms"), tmp_path / "run.json")
    ended = subprocess.run(
        [TRITONWATCH, "load", "report", tmp_path / "run.json", "--html",
         tmp_path / "run.html", "--json", tmp_path / "report.json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stderr
    assert "OBJECTIVE MISSED: p50<1ms" in ended.stdout
    document = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert [term["passed"] for term in document["objectives"]] == [True, False]
    old = result_file.to_document(replace(made("p99<20ms")))
    del old["about"]["slo"]
    assert report_of(result_file.from_document(old)).objectives == ()


def test_a_reports_files_are_checked_first_and_its_json_is_written_first(
    tmp_path, capfd
) -> None:
    before, report = tmp_path / "run.json", tmp_path / "report.json"
    result_file.write(made("p99<20ms"), before)
    for option, file, said in (
        ("--json", before, "is read here, too"),
        ("--html", tmp_path, "is a folder"),
        ("--html", "/nowhere/run.html", "no such folder: /nowhere"),
    ):
        given = ["load", "report", str(before), option, str(file)]
        assert main(given) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert said in err
    report.write_text("older", "utf-8")
    given = ["load", "report", str(before), "--json", str(report)]
    assert main([*given, "--html", "/dev/full"]) == 2
    out, err = capfd.readouterr()
    assert "OBJECTIVE" in out
    assert f"{report}: exists, and will be replaced" in err
    assert "/dev/full: cannot be written" in err
    assert json.loads(report.read_text("utf-8"))["objectives"]
