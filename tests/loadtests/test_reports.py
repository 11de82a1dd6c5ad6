"""Reports: what they say, and that they are whole by themselves."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from dependent_latencies import queue, queue_quantile
from load_runs import SECONDS, about, charts_of, made, of_waits
from whole_pages import whole

from loadtests import json_file, result_file
from loadtests.cli import REPORTS
from loadtests.dependent_intervals import quantile_side
from loadtests.load_report_command import MODELS
from loadtests.report import run_document
from loadtests.report.run_figures import latencies_of
from loadtests.report.run_report import RunReport, report_of
from loadtests.result import Outcome, Requests, RunResult, Verdict
from pages import page_html, page_text, units
from pages.blocks import Document, Facts, Figure, Table
from pages.plots import Axis, Mark, Plot, Series

ROOT = Path(__file__).parents[2]
TRITONWATCH = str(Path(sys.executable).with_name("tritonwatch"))


def test_the_verdict_on_a_disturbed_run_names_what_disturbed_it() -> None:
    """A reader of the first lines alone must not take the numbers for the server's."""
    quiet, noise = made(), "other processes disturbed 10 of 10 windows of 1 s"
    told = page_text.render(run_document.document(report_of(quiet.warned(noise))))
    assert f"VALID with reservations: {noise}" in told
    assert "no reason against" not in told
    assert told.count(noise) == 1
    both = quiet.invalid("a worker was lost").warned(noise)
    told = page_text.render(run_document.document(report_of(both)))
    assert "  INVALID: a worker was lost" in told
    assert f"note: {noise}" in told
    assert "VALID: no reason" in page_text.render(
        run_document.document(report_of(quiet))
    )


@pytest.mark.parametrize(("missed", "is_said"), [(0.75, True), (0.25, False)])
def test_a_run_that_mostly_failed_is_not_valid_without_reservations(
    missed, is_said
) -> None:
    told = page_text.render(run_document.document(report_of(made(missed=missed))))
    reservation = "VALID with reservations: 7[0-9.]+ % of the requests failed"
    assert bool(re.search(reservation, told)) is is_said


def test_a_size_is_shown_in_a_unit_that_people_read() -> None:
    found = Facts({"hardware": {"cpus": 2, "memory_bytes": 8_241_152_000}})
    assert found.pairs == [("hardware", "cpus 2, memory 7.68 GiB")]
    assert Facts({"memory_bytes": 512 << 20}).pairs == [("memory", "512 MiB")]


def test_a_slice_of_a_chart_has_several_requests() -> None:
    for seconds, slices in ((40.0, 120), (4.0, 16)):
        assert len(report_of(made(seconds=seconds)).slices) == slices
    dense = made()
    rare = dense.requests.where(slice(0, None, 20))
    thinned = RunResult.of(
        dense.about, rare, duration_seconds=SECONDS, sender_cpu_seconds=1.0
    )
    assert len(report_of(thinned).slices) == 40


def queued(rng: np.random.Generator, count: int) -> RunResult:
    """A run on a server with a queue at 80 % of its capacity."""
    return of_waits(queue(0.8)(rng, count), seconds=count)


def test_intervals_of_a_run_hold_although_its_requests_wait_in_one_queue() -> None:
    rng = np.random.default_rng(3)
    reports = [latencies_of(queued(rng, 20_000)) for _ in range(40)]
    for q, name in ((0.5, "p50"), (0.9, "p90")):
        for kind in ("from_intended", "from_send"):
            found = [getattr(report[kind], name) for report in reports]
            shown = [one for one in found if one.low is not None]
            assert len(shown) >= 30
            held = [one.low <= queue_quantile(0.8)(q) <= one.high for one in shown]
            # 0.95 of 30 less two and a half deviations; of independent ones 0.2 would.
            assert np.mean(held) >= 0.85
            assert all(20 < one.effective_requests < 2_000 for one in shown)
            assert all(one.value is not None for one in found)


def test_a_quantile_within_one_batch_of_equal_waits_has_no_interval() -> None:
    waits = np.repeat(np.random.default_rng(3).lognormal(size=20), 64)
    side = quantile_side(waits, 0.99, 0.95)
    assert side.reason
    assert np.isnan(side.low)
    assert side.effective_requests == 0


def test_the_page_has_the_number_of_independent_requests_or_why_it_is_unknown() -> None:
    rng = np.random.default_rng(3)
    long, short = (
        page_text.render(run_document.document(report_of(queued(rng, count))))
        for count in (200_000, 2_000)
    )
    assert re.search(r"95 % interval of p99: .* to .*: \d+ independent", long)
    assert "No interval of p99: " in short


def test_an_overloaded_server_does_not_look_as_if_it_kept_up() -> None:
    """300 requests per second are due for 10 s; 100 per second are answered."""
    requests = Requests.empty(3000)
    requests.intended[:] = np.arange(3000) / 300
    requests.sent[:] = requests.intended
    requests.done[:] = np.arange(1, 3001) / 100
    requests.outcome[:] = Outcome.OK
    result = RunResult.of(
        about(
            profile={"kind": "constant", "requests_per_second": 300.0},
            schedule_seconds=10.0,
        ),
        requests,
        duration_seconds=30.0,
        sender_cpu_seconds=1.0,
    )
    assert result.intended_rate == pytest.approx(300)
    assert result.throughput == pytest.approx(100, rel=2e-3)
    report = report_of(result)
    chart = charts_of(report)["Requests due and answered"]
    due, answered = chart.series
    assert (due.name, answered.name) == ("due", "answered correctly")
    early = due.x < 9.5
    assert due.y[early] == pytest.approx(300, rel=0.02)
    assert due.y[due.x >= 10] == pytest.approx(0)
    assert answered.y == pytest.approx(100, rel=0.05)


def test_charts_show_their_values_where_the_pointer_rests() -> None:
    report = report_of(made())
    html = page_html.render(run_document.document(report))
    one = report.slices[60]
    said = f"<title>at {one.start_seconds:g}, median {one.p50 * 1e3:.4g}, "
    assert said in html


def test_time_without_requests_counts_in_both_rates() -> None:
    """300 requests are due, and answered, from 4 s to 6 s of a schedule of 10 s."""
    requests = Requests.empty(300)
    requests.intended[:] = requests.sent[:] = np.linspace(4, 6, 300)
    requests.done[:] = requests.intended + 0.01
    requests.outcome[:] = Outcome.OK
    result = RunResult.of(
        about(schedule_seconds=10.0),
        requests,
        duration_seconds=6.01,
        sender_cpu_seconds=1.0,
    )
    report = report_of(result)
    assert report.intended_rate == report.throughput == pytest.approx(30)
    assert result_file.summary(result)["intended_requests_per_second"] == 30


@pytest.mark.parametrize("kind", REPORTS)
def test_the_published_schema_is_the_code_s(kind) -> None:
    """`make generate` writes it anew."""
    committed = ROOT / "loadtests" / "report" / f"{kind}.schema.json"
    assert committed.read_text("utf-8") == json_file.schema(MODELS[kind]) + "\n"


def test_slices_add_up_to_the_run() -> None:
    result = made()
    report = report_of(result)
    width = SECONDS / len(report.slices)
    offered = sum(s.offered_per_second * width for s in report.slices)
    assert offered == pytest.approx(len(result.requests))
    curve = [(p.quantile, p.from_intended) for p in report.curve]
    assert curve == sorted(curve)
    late = result.requests.done - result.requests.intended
    middle = min(report.curve, key=lambda p: abs(p.quantile - 0.9))
    assert middle.from_intended == pytest.approx(
        np.quantile(late, middle.quantile), rel=0.01
    )


def test_phases_of_the_profile_are_told_apart() -> None:
    profile = {
        "kind": "steps",
        "first_requests_per_second": 100.0,
        "last_requests_per_second": 300.0,
        "steps": 4,
        "step_seconds": 10.0,
    }
    report = report_of(made(profile=profile))
    assert [part.name for part in report.parts] == [f"step-{i}" for i in range(1, 5)]
    assert sum(part.requests for part in report.parts) == report.requests


def test_a_page_does_not_list_hundreds_of_phases() -> None:
    profile = {"kind": "on_off", "on_seconds": 0.1, "off_seconds": 0.1}
    report = report_of(made(profile={**profile, "duration_seconds": SECONDS}))
    assert len(report.parts) == 400
    assert sum(part.requests for part in report.parts) == report.requests
    told = page_text.render(run_document.document(report))
    assert "400 phases of the profile; a report's --json has them." in told
    assert len(told.splitlines()) < 40


def test_a_report_survives_json_and_the_page_is_whole_by_itself() -> None:
    report = report_of(made(missed=0.01, verdict=Verdict(reasons=("noise",))))
    again = RunReport.model_validate_json(report.model_dump_json())
    assert again == report
    html = page_html.render(run_document.document(again))
    tags = whole(html)
    assert "svg" in tags.seen
    assert "INVALID: noise" in html
    assert "&lt;script&gt;alert" in html
    assert "digits &lt;fp32&gt;" in html
    assert "INVALID: noise" in page_text.render(run_document.document(again))


def test_a_run_without_an_answer_has_a_report() -> None:
    result = made(seconds=2.0)
    result.requests.outcome[:] = Outcome.TIMEOUT
    report = report_of(result)
    assert report.latency.p50.value is None
    assert report.throughput == 0
    whole(page_html.render(run_document.document(report)))
    told = page_text.render(run_document.document(report))
    assert re.search(rf"timeout +{len(result.requests)} +no answer in time", told)


def test_quantiles_are_drawn_over_time_only_where_enough_requests_support_them() -> (
    None
):
    report, drawn = report_of(made()), []
    for a_second in (800, 200, 40):
        slices = [
            s.model_copy(update={"offered_per_second": a_second}) for s in report.slices
        ]
        page = run_document.document(
            report.model_copy(update={"slices": tuple(slices)})
        )
        [plot] = re.findall(
            r"Latency from the intended send: (.*?);", page_html.render(page)
        )
        drawn.append(plot)
    assert drawn == [
        "median, p95, p99, slowest",
        "median, p95, slowest",
        "median, slowest",
    ]


def test_no_change_has_no_sign_of_a_fall() -> None:
    assert units.percent(-0.0) == "0 %"
    assert units.percent(-0.0, "+") == "+0 %"


def test_a_column_of_unknown_numbers_is_aligned_like_numbers() -> None:
    table = Table(("latency", "p99", "note"), [("send", "unknown", "none")])
    page = page_html.render(Document("x", [table]))
    assert "<th>p99</th>" in page
    assert '<th class="word">note</th>' in page


def test_a_plot_leaves_gaps_and_keeps_within_its_frame() -> None:
    x = np.arange(6.0)
    y = np.array([1.0, 10, np.nan, 100, 1000, np.inf])
    plot = Plot(
        "a <plot>",
        Axis("x"),
        Axis("y", log=True),
        (Series("one", x, y), Series("two", x, y / 2, "points")),
        (Mark("here", x=3.0), Mark("there", y=50.0)),
    )
    whole(page_html.render(Document("t", [Figure(plot)])))
    drawn = plot.render()
    assert drawn.count('class="line') == 2
    numbers = [float(n) for n in re.findall(r"[ML](-?[\d.]+) ", drawn)]
    assert all(0 <= n <= 720 for n in numbers)
    assert "nan" not in drawn
    assert "inf" not in drawn
    empty = Plot("none", Axis("x"), Axis("y", log=True), (Series("", x[:0], x[:0]),))
    assert "<svg" in empty.render()


def test_a_table_is_a_file_in_which_no_text_is_a_formula() -> None:
    rows = [("=cmd|' /C calc'!A0", "-1.5"), ("-2+cmd", '+3 % "and", more')]
    tags = whole(page_html.render(Document("t", [Table(("what", "of"), rows)])))
    [address] = tags.addresses
    text = unquote(address.partition(",")[2])
    assert list(csv.reader(text.splitlines())) == [
        ["what", "of"],
        ["'=cmd|' /C calc'!A0", "-1.5"],
        ["'-2+cmd", '\'+3 % "and", more'],
    ]
