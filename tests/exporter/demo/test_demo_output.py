"""The demo's output: short lines, a table, and a reason for what is not known."""

from __future__ import annotations

import io
import re

import pytest

from exporter.demo.demo_readings import Reader
from exporter.demo.demo_screen import WIDTH, Screen, log_text

POWER = 'triton_host_power_watts{domain="host",source="model"} 30\n'
OF_IT = 'model="diabetes",version="1"'
HOST = 'boundary="host",source="model"'
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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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
    assert rates == [""] * 3 + ["100"] * 27


def test_power_is_shown_with_its_source_and_what_a_request_takes():
    assert read("").energy == "energy: no power was read yet"
    total = f'triton_requests_total{{{OF_IT},outcome="success"}} %d\n'
    pages = [POWER + total % number for number in (10, 25)]
    assert read(pages[0]).energy == "energy: 30 W (estimated from CPU time)"
    each = ", 2 J a request over all models"
    assert read(*pages).energy == f"energy: 30 W (estimated from CPU time){each}"


def test_streamed_answers_have_a_line_with_their_first_response_and_their_pace():
    first, gap = (
        "".join(
            f'triton_request_{what}_seconds{{{OF_IT},quantile="{quantile}"}} {value}\n'
            f'triton_request_{what}_ci_seconds{{{OF_IT},quantile="{quantile}",'
            f'bound="lower"}} {value - 0.001}\n'
            f'triton_request_{what}_ci_seconds{{{OF_IT},quantile="{quantile}",'
            f'bound="upper"}} {value + 0.002}\n'
            for quantile, value in (("0.5", half), ("0.99", 10 * half))
        )
        for what, half in (
            ("first_response_latency", 0.0098),
            ("response_gap_latency", 0.00437),
        )
    )
    assert read(SERVES).streamed == ()
    (line,) = read(SERVES + first).streamed
    assert line == "diabetes streams: first response p50 9.8 [8.8, 11.8] ms"
    (line,) = read(SERVES + first + gap).streamed
    assert line.endswith(" 9.8 [8.8, 11.8] ms, gaps p50 4.37 [3.37, 6.37] ms")
    without = "".join(x for x in first.splitlines(keepends=True) if "_ci_" not in x)
    assert read(SERVES + without).streamed == ()
    tokens = 'triton_tokens_total{%s,direction="%s",source="backend"} %d\n'
    pages = [
        SERVES
        + first
        + gap
        + tokens % (OF_IT, "output", 100 + 250 * place)
        + tokens % (OF_IT, "input", 99 * place)
        + f'triton_token_energy_joules{{{OF_IT},{HOST},basis="full"}} 0.0125\n'
        + f'triton_token_energy_joules{{{OF_IT},{HOST},basis="active"}} 0.001\n'
        + f"triton_model_energy_share_error_ratio{{{OF_IT},{HOST}}} 0.08\n"
        + f'triton_model_cost_per_thousand_tokens{{{OF_IT},currency="EUR",basis="full"}}'
        " 0.00153\n"
        for place in range(2)
    ]
    _, line = read(*pages).streamed
    money = "0.00153 EUR per 1,000 tokens"
    made = "diabetes made 250 tokens/s, "
    assert line == made + f"12.5 J ± 8 % (host) and {money}"
    doubted = [page.replace("_error_ratio", "_other") for page in pages]
    assert read(*doubted).streamed[1] == made + f"unknown joules and {money}"


def test_the_tail_is_the_highest_quantile_with_an_interval_or_why_there_is_none():
    assert read(SERVES).models[0].tail == "not yet: 120 traces"
    assert read(SERVES + LATENCY).models[0].tail == "p99 2.79 [2.43, 56.6]"
    dependent = LATENCY.splitlines()[0] + "\n" + EFFECTIVE
    assert read(SERVES + dependent).models[0].tail == "not yet: 120 traces"
    lower = LATENCY.replace('"0.99"', '"0.95"').replace("0.00279", "0.0021")
    assert read(SERVES + dependent + lower).models[0].tail == "p95 2.1 [2.43, 56.6]"
    untraced = "\n".join(line for line in SERVES.splitlines() if "trace" not in line)
    untraced = untraced.replace("triton_request_duration_seconds_count", "other")
    assert read(untraced).models[0].tail == "is not traced"


def test_what_is_not_known_yet_is_left_out():
    out = io.StringIO()
    Screen(out).show(read(SERVES), 0.0)
    assert "?" not in out.getvalue()
    table = Terminal()
    Screen(table).show(read(SERVES), 0.0)
    assert "?" not in table.getvalue()


def test_requests_a_second_come_from_two_pages():
    pages = [
        f'{SERVES}triton_requests_total{{{OF_IT},outcome="success"}} {n}\n'
        for n in (100, 114)
    ]
    assert read(pages[0]).models[0].rate == ""
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
    more = [("diabetes", "its data drifted: age, sex", "TritonDriftAlarm"), wrong[1]]
    named_more = read(SERVES, said=status("DRIFTED", more)).troubles
    assert named_more.keys() == reading.troubles.keys()


@pytest.mark.parametrize(
    "finding",
    [
        ("precision", "int8 is worse in latency_mean", "TritonComparisonWorse"),
        ("slow-latency", "objective's error budget is spent", "TritonSLOBurnTicket"),
    ],
)
def test_what_is_expected_or_too_soon_to_say_is_no_trouble(finding):
    assert read(SERVES, said=status(findings=[finding])).troubles == {}


def test_in_a_pipe_lines_are_whole_and_models_are_shown_every_ten_seconds():
    out = io.StringIO()
    screen = Screen(out)
    for second in range(12):
        page = SERVES + (LATENCY if second else "") + POWER
        screen.show(read(page), float(second))
    drifted = read(SERVES + LATENCY + DRIFTED, said=status("DRIFTED"))
    screen.show(drifted, 12.0)
    screen.event("first\n" + 200 * "x")
    lines = out.getvalue().splitlines()
    assert lines[-1].endswith(f"  {200 * 'x'}")
    assert sum(" SERVING " in line for line in lines) == 2
    assert [line for line in lines if " DRIFTED " in line] == lines[-3:-2]
    assert all(re.match(r"\d\d:\d\d:\d\d  ", line) for line in lines)
    assert "\x1b" not in out.getvalue()


def test_on_a_terminal_the_table_is_drawn_again_in_its_place():
    out = Terminal()
    screen = Screen(out)
    reading = read(SERVES + LATENCY + POWER)
    screen.show(reading, 0.0)
    first = out.getvalue()
    assert "\x1b" not in first
    assert re.search(r"^MODEL +STATE +REQ/S", first, re.MULTILINE)
    assert re.search(
        r"^diabetes +SERVING .* p99 2.79 \[2.43, 56.6\]", first, re.MULTILINE
    )
    screen.event("! something")
    screen.show(reading, 1.0)
    again = out.getvalue().removeprefix(first)
    assert again.startswith(f"\x1b[{first.count(chr(10))}F\x1b[J")
    assert "! something" in again
    assert max(len(line) for line in again.splitlines()) <= WIDTH + len(
        "\x1b[10F\x1b[J"
    )


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


def test_an_event_of_the_log_reads_as_text():
    line = (
        "ts=2026-11-28T19:19:27Z level=warning event=collector_failed "
        'collector=statistics reason="no result \\"yet\\" within 0.9 s" lines_lost=3\n'
    )
    said = 'collector failed: statistics; no result "yet" within 0.9 s'
    assert log_text(line) == said
    for other in ("Traceback (most recent call last):", "it's \"half", "a=b"):
        assert log_text(f"{other}\n") == other


def test_a_long_event_in_the_table_is_wrapped_and_not_cut():
    out = Terminal()
    screen = Screen(out)
    screen.event("sidecar: " + "reason " * 30 + "last")
    screen.show(read(SERVES), 0.0)
    lines = out.getvalue().splitlines()
    assert any(line.endswith("last") for line in lines)
    assert max(map(len, lines)) <= WIDTH + len("\x1b[15F\x1b[J")
