"""Two load runs compared: what is a regression, and what cannot be decided."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dependent_latencies import queue
from load_runs import made, of_waits
from whole_pages import whole

from loadtests import result_file
from loadtests.report.comparison_report import compared, document, sentence
from loadtests.result import Outcome, Verdict
from pages import page_text

ROOT = Path(__file__).parents[2]
TRITONWATCH = str(Path(sys.executable).with_name("tritonwatch"))


def test_the_same_load_twice_is_no_regression_at_the_promised_rate() -> None:
    calls = [
        compared(made(seed), made(seed + 1000), tolerance_ratio=0.05).call
        for seed in range(12)
    ]
    # 5 % at most are promised; more than 3 of 12 happen once in 450 times.
    assert calls.count("worse") <= 3


def test_a_slower_server_and_one_that_fails_are_regressions() -> None:
    slower = compared(made(1), made(2, slower=1.5), tolerance_ratio=0.05)
    assert slower.call == "worse"
    assert {c.name for c in slower.changes if c.call == "worse"} >= {"p50", "p99"}
    failing = compared(made(1), made(2, missed=0.02), tolerance_ratio=0.05)
    assert failing.call == "worse"
    faster = compared(made(1), made(2, slower=0.6), tolerance_ratio=0.05)
    assert faster.call in {"better", "unknown"}


@pytest.mark.parametrize("load", [0.5, 0.8, 0.95])
def test_two_runs_of_one_busy_queue_are_not_called_different(load) -> None:
    rng = np.random.default_rng(20_261)
    draw, calls = queue(load), []
    for _ in range(40):
        pair = [of_waits(0.002 * draw(rng, 10_000)) for _ in range(2)]
        found = compared(*pair, tolerance_ratio=0.05)
        calls += [c.call for c in found.changes]
        assert found.call != "unknown" or sentence(found).startswith("not enough data")
    # 5 % of 40 comparisons; more than 6 happen once in 290 times.
    assert calls.count("worse") + calls.count("better") <= 6


def test_an_undecided_figure_says_why() -> None:
    rng = np.random.default_rng(1)
    busy = [of_waits(0.002 * queue(0.95)(rng, 10_000)) for _ in range(2)]
    p99 = next(
        c for c in compared(*busy, tolerance_ratio=0.05).changes if c.name == "p99"
    )
    assert p99.call == "unknown"
    assert "make it longer" in p99.reason


def test_a_burst_of_errors_is_no_change_of_the_share_of_misses() -> None:
    """One outage of 1 s in either run says nothing of how many there will be."""
    down = made(2)
    down.requests.outcome[2000:2200] = Outcome.ERROR
    (misses,) = (
        c
        for c in compared(made(1), down, tolerance_ratio=0.05).changes
        if c.name == "misses"
    )
    assert misses.call == "unknown"
    assert "slow spells" in misses.reason or "correlated" in misses.reason


def test_too_little_and_not_comparable_are_not_called_the_same() -> None:
    short = compared(made(1, seconds=4), made(2, seconds=4), tolerance_ratio=0.05)
    assert short.call == "unknown"
    invalid = made(2, verdict=Verdict(reasons=("noise",)))
    told = compared(made(1), invalid, tolerance_ratio=0.05)
    assert told.call == "unknown"
    assert "INVALID: noise" in told.problems[0]


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ({"mode": "closed", "in_flight": 4}, {"mode": "closed", "in_flight": 16},
         "they kept 4 and 16 requests in flight"),
        ({"profile": {"kind": "constant", "requests_per_second": 200.0}},
         {"profile": {"kind": "poisson", "requests_per_second": 200.0}},
         "profiles differ in kind: constant and poisson"),
        ({"profile": {"kind": "gamma", "variation": 1.0}},
         {"profile": {"kind": "gamma", "variation": 3.0}},
         "profiles differ in variation: 1.0 and 3.0"),
        ({"timeout_seconds": 10.0}, {"timeout_seconds": 0.5},
         "timeouts differ: 10 s and 0.5 s"),
        ({"profile": {"kind": "poisson", "duration_seconds": 40.0}},
         {"profile": {"kind": "poisson", "duration_seconds": 60.0}}, ""),
        ({"in_flight": 100}, {"in_flight": 4096}, ""),
    ],
)  # fmt: skip
def test_runs_that_were_sent_otherwise_are_not_compared(first, second, problem) -> None:
    pair = []
    for slower, changes in ((1.0, first), (2.0, second)):
        result = made(1, slower=slower)
        pair.append(replace(result, about=replace(result.about, **changes)))
    found = compared(*pair, tolerance_ratio=0.05)
    assert found.problems == ((problem,) if problem else ())
    assert found.call == ("unknown" if problem else "worse")


def test_reservations_about_either_run_are_those_of_the_comparison() -> None:
    """Disturbed runs decide with less certainty than the intervals say."""
    noise = "other processes disturbed 10 of 10 windows of 1 s"
    found = compared(made(1).warned(noise), made(1), tolerance_ratio=0.2)
    assert found.warnings == (f"the first: {noise}",)
    first = page_text.render(document(found, "a", "b")).splitlines()[1]
    assert "no regression" in first
    assert f"with reservations: the first: {noise}" in first


def test_a_comparison_says_that_most_requests_of_a_run_failed() -> None:
    found = compared(made(1, missed=0.75), made(1), tolerance_ratio=0.2)
    assert [text.partition(": ")[0] for text in found.warnings] == ["the first"]
    assert "of the requests failed" in found.warnings[0]


@pytest.mark.parametrize(
    ("second", "status"), [({}, 0), ({"slower": 2.0}, 1), ({"seconds": 4.0}, 3)]
)
def test_the_gate_s_exit_status(tmp_path, second, status) -> None:
    result_file.write(made(1), tmp_path / "a.json")
    # Twice the same run is the same for sure.
    result_file.write(made(1, **second), tmp_path / "b.json")
    ended = subprocess.run(
        [
            TRITONWATCH, "load", "report", tmp_path / "a.json", tmp_path / "b.json",
            "--tolerance", "0.2", "--html", tmp_path / "c.html", "--json",
            tmp_path / "c.json",
        ],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert ended.returncode == status, ended.stdout + ended.stderr
    whole((tmp_path / "c.html").read_text("utf-8"))
    assert json.loads((tmp_path / "c.json").read_text("utf-8"))["changes"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not valid JSON"),
        ("[]", "want a JSON object"),
        ('{"format": "x"}', "want tritonwatch-load-run or"),
        ('{"format": "tritonwatch-load-capacity"}', "is incomplete: model"),
        ('{"format": "tritonwatch-load-run", "version": 9}', "found version 9"),
    ],
)
def test_a_file_that_is_no_result_says_so(tmp_path, content, said) -> None:
    file = tmp_path / "a.json"
    file.write_text(content)
    ended = subprocess.run(
        [TRITONWATCH, "load", "report", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert said in ended.stderr
    assert str(file) in ended.stderr
