"""The demo's output: short lines, and a reason for what is not known."""

from __future__ import annotations

import io
import re

import pytest

from exporter.demo.demo_output import WIDTH, Reader, Screen

OF_IT = 'model="diabetes",version="1"'
SERVES = f"""\
triton_up 1
triton_model_ready{{{OF_IT}}} 1
triton_model_serving{{{OF_IT}}} 1
tritonwatch_trace_records_total{{source="file",outcome="request"}} 120
triton_request_duration_seconds_count{{{OF_IT}}} 120
triton_golden_score_ratio{{{OF_IT},dataset="held_out",metric="accuracy"}} 0.7412
"""
LATENCY = f"""\
triton_request_latency_seconds{{{OF_IT},quantile="0.99"}} 0.00279
triton_request_latency_ci_seconds{{{OF_IT},quantile="0.99",bound="lower"}} 0.00243
triton_request_latency_ci_seconds{{{OF_IT},quantile="0.99",bound="upper"}} 0.0566
"""
EFFECTIVE = (
    f'triton_request_latency_effective_samples{{{OF_IT},quantile="0.99"}} 209.7\n'
)
DRIFTED = 'triton_model_drift_alarm{model="diabetes",side="inputs"} 1\n' + "".join(
    f'triton_feature_drift_alarm{{model="diabetes",side="inputs",feature="{name}"}} 1\n'
    for name in ("age", "bmi", "bp", "tc", "ldl", "hdl", "tch", "ltg", "glu", "sex")
)


def status(state="SERVING", findings=()):
    return {
        "models": [{"model": "diabetes", "version": "1", "state": state}],
        "findings": [
            {"subject": subject, "text": text, "runbook": runbook}
            for subject, text, runbook in findings
        ],
    }


def read_at(second: float) -> str:
    metric = "tritonwatch_collector_last_success_timestamp_seconds"
    return f'{metric}{{collector="statistics"}} {second}\n'


def read(*pages: str, said=None):
    reader = Reader()
    for second, page in enumerate(pages):
        reading = reader.read((read_at(second) + page).encode(), said or status())
    return reading


def test_a_steady_rate_is_steady_however_the_pages_fall_between_the_reads():
    reader, rates = Reader(), []
    for second in range(1, 31):
        at = second // 4 * 4
        total = f'triton_requests_total{{{OF_IT},outcome="success"}} {100 * at}\n'
        reading = reader.read((SERVES + total + read_at(at)).encode(), status())
        rates.append(reading.models[0].rate)
    assert rates == ["?"] * 3 + ["100"] * 27


def test_a_quantile_is_shown_with_its_interval_or_with_what_it_needs():
    assert read(SERVES).models[0].tail == "? (120 of 368 traces)"
    assert read(SERVES + LATENCY).models[0].tail == "2.79 [2.43, 56.6]"
    dependent = LATENCY.splitlines()[0] + "\n" + EFFECTIVE
    assert read(SERVES + dependent).models[0].tail == "2.79 [? 210 of 368]"
    untraced = "\n".join(line for line in SERVES.splitlines() if "trace" not in line)
    untraced = untraced.replace("triton_request_duration_seconds_count", "other")
    assert read(untraced).models[0].tail == "? (nothing is traced)"


def test_requests_a_second_come_from_two_pages():
    pages = [
        f'{SERVES}triton_requests_total{{{OF_IT},outcome="success"}} {n}\n'
        for n in (100, 114)
    ]
    assert read(pages[0]).models[0].rate == "?"
    assert read(*pages).models[0].rate == "14"


def test_the_state_and_what_is_wrong_are_those_of_the_status_page():
    wrong = [
        ("diabetes", "its data drifted: age", "TritonDriftAlarm"),
        ("data", "burns", "TritonSLOBurnPage"),
    ]
    reading = read(SERVES, said=status("DRIFTED", wrong))
    assert reading.models[0].state == "DRIFTED"
    assert list(reading.troubles.values()) == [
        "diabetes: its data drifted: age",
        "data: burns",
    ]
    assert read(SERVES).troubles == {}


@pytest.mark.parametrize(
    "finding",
    [
        ("precision", "int8 is worse in latency_mean", "TritonComparisonWorse"),
        ("slow-latency", "objective's error budget is spent", "TritonSLOBurnTicket"),
    ],
)
def test_what_is_expected_or_too_soon_to_say_is_no_trouble(finding):
    assert read(SERVES, said=status(findings=[finding])).troubles == {}


def test_lines_are_short_and_models_are_shown_every_ten_seconds():
    out = io.StringIO()
    screen = Screen(out)
    for second in range(12):
        page = SERVES + (LATENCY if second else "")
        screen.show(read(page), float(second))
    drifted = read(SERVES + LATENCY + DRIFTED, said=status("DRIFTED"))
    screen.show(drifted, 12.0)
    screen.event("first\n" + 200 * "x")
    lines = out.getvalue().splitlines()
    assert max(len(line) for line in lines) <= WIDTH
    assert sum(" SERVING " in line for line in lines) == 2
    assert [line for line in lines if " DRIFTED " in line] == lines[-3:-2]
    assert all(re.match(r"\d\d:\d\d:\d\d  ", line) for line in lines)


def test_rates_are_of_the_last_seconds_so_that_a_counter_read_seldom_shows_no_zero():
    counted = (
        'triton_requests_total{model="diabetes",version="1",outcome="success"} %d\n'
    )
    # Read every third second; 10 a second, and none from the 10th on.
    totals = [10 * min(second // 3 * 3, 9) for second in range(20)]
    pages = [SERVES + counted % total for total in totals]
    shown = [read(*pages[: end + 1]).summary for end in range(20)]
    rates = [float(re.search(r"([\d.]+) requests/s", line)[1]) for line in shown[1:]]
    assert all(5 <= rate <= 13 for rate in rates[5:10])
    assert rates[-1] == 0
