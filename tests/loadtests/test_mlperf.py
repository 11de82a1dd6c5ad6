"""LoadGen's rules, against what the real LoadGen said and published."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from loadtests.mlperf import loadgen_verdict
from loadtests.mlperf.schedule import mersenne_twister, server_schedule
from loadtests.result import About, Outcome, Requests, RunResult

RECORDED = json.loads(
    (Path(__file__).parents[1] / "data" / "loadgen.json").read_text("utf-8")
)


def test_the_generator_is_the_standard_library_s() -> None:
    # ISO C++ [rand.predef]: the 10,000th of a default-seeded mt19937 is 4123659995.
    assert mersenne_twister(5489).random_raw(10_000)[-1] == 4_123_659_995


@pytest.mark.parametrize("case", RECORDED["schedules"], ids=lambda c: str(c["seed"]))
def test_one_seed_gives_loadgen_s_schedule_to_the_nanosecond(case) -> None:
    due = server_schedule(
        case["queries_per_second"],
        case["least_seconds"],
        case["least_queries"],
        case["seed"],
    )
    assert due.size == case["queries"]
    found = np.rint(due * 1e9).astype(np.int64)
    assert found[:20].tolist() == case["first_ns"]
    assert found[-1] == case["last_ns"]


def test_a_schedule_is_poisson_and_begins_at_zero() -> None:
    due = server_schedule(200.0, 100.0, 10, 7)
    assert due[0] == 0
    assert stats.kstest(np.diff(due), stats.expon(scale=1 / 200).cdf).pvalue > 0.01


def test_a_schedule_ends_with_the_first_query_that_is_late_enough() -> None:
    due = server_schedule(200.0, 2.0, 10, 7)
    assert due[-2] < 2.0 <= due[-1]
    assert server_schedule(200.0, 2.0, 5000, 7).size == 5000


@pytest.mark.parametrize(
    ("percentile", "misses", "queries"),
    [
        (0.9, 0, 44),
        (0.9, 1, 64),
        (0.9, 10, 197),
        (0.99, 0, 459),
        (0.99, 1, 662),
        (0.99, 10, 2010),
        (0.99, 100, 12_571),
        (0.999, 0, 4603),
        (0.999, 100, 125_826),
    ],
)
def test_the_published_query_counts(percentile, misses, queries) -> None:
    assert loadgen_verdict.least_queries(misses, percentile) == queries


@pytest.mark.parametrize("percentile", [0.9, 0.99])
def test_enough_is_enough_and_one_less_is_not_by_the_binomial(percentile) -> None:
    for misses in range(101):
        count = loadgen_verdict.least_queries(misses, percentile)
        assert stats.binom.cdf(misses, count, 1 - percentile) < 0.01
        assert stats.binom.cdf(misses, count - 1, 1 - percentile) >= 0.01


@pytest.mark.parametrize("case", RECORDED["verdicts"], ids=lambda c: str(c["misses"]))
def test_the_same_verdict_as_loadgen_on_the_same_latencies(case) -> None:
    latencies = np.full(case["queries"], 0.5 * case["limit_seconds"])
    latencies[: case["misses"]] = 3 * case["limit_seconds"]
    found = loadgen_verdict.holds(latencies, case["limit_seconds"], case["percentile"])
    assert found == case["early_stopping"]


def test_the_estimate_is_the_order_statistic_that_the_misses_allow() -> None:
    latencies = np.random.default_rng(1).permutation(np.arange(1, 198) / 1000)
    # 197 queries carry 10 misses of p90: the tenth largest.
    assert loadgen_verdict.estimate(latencies, 0.9) == 0.188
    assert loadgen_verdict.estimate(latencies[:63], 0.9) is None
    assert loadgen_verdict.most_misses(43, 0.9) is None


def test_the_estimate_is_above_the_percentile_in_99_of_100_iid_runs() -> None:
    rng = np.random.default_rng(2)
    true = -np.log(0.1)
    below = sum(
        (loadgen_verdict.estimate(rng.exponential(size=500), 0.9) or 0) < true
        for _ in range(1000)
    )
    assert stats.binomtest(below, 1000, 0.01, "greater").pvalue > 0.001


def test_a_server_run_is_valid_with_all_its_checks() -> None:
    due = server_schedule(1000.0, 2.0, 100, 3)
    demands = {
        "limit_seconds": 0.01,
        "percentile": 0.99,
        "least_seconds": 2.0,
        "least_queries": 100,
    }
    good = loadgen_verdict.server(np.full(due.size, 0.004), due, **demands)
    assert good.valid
    assert good.result == pytest.approx(1000, rel=0.1)
    late = np.full(due.size, 0.004)
    late[: due.size // 50] = np.inf  # 2 % never answered
    assert not loadgen_verdict.server(late, due, **demands).constraints_met
    short = loadgen_verdict.server(
        np.full(due.size, 0.004), due, **{**demands, "least_seconds": 600.0}
    )
    assert not short.valid
    assert not short.min_duration_met
    assert short.early_stopping_met


def test_streams_and_offline_report_what_mlperf_reports() -> None:
    single = loadgen_verdict.stream(
        np.arange(1, 198) / 1000,
        scenario="SingleStream",
        percentile=0.9,
        last_issued_seconds=700.0,
        least_seconds=600.0,
        least_queries=100,
    )
    assert single.valid
    assert single.result == 0.188
    offline = loadgen_verdict.offline(
        24_576, 700.0, least_seconds=600.0, least_samples=24_576
    )
    assert offline.result == pytest.approx(24_576 / 700)
    assert offline.valid


@pytest.mark.parametrize(
    ("profile", "valid", "result"),
    [
        (
            {
                "kind": "mlperf_server",
                "target_queries_per_second": 100.0,
                "limit_seconds": 0.02,
                "least_seconds": 9.0,
            },
            True,
            100.0,
        ),
        ({"kind": "mlperf_server", "limit_seconds": 0.005}, False, 100.0),
        ({"kind": "mlperf_single_stream", "least_seconds": 9.0}, True, 0.01),
        ({"kind": "mlperf_multi_stream", "least_seconds": 9.0}, True, 0.01),
        ({"kind": "mlperf_multi_stream"}, False, 0.01),
        (
            {"kind": "mlperf_offline", "samples": 1000, "least_seconds": 9.0},
            True,
            100.0,
        ),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else None,
)
def test_a_run_of_a_scenario_is_judged_by_its_own_rules(profile, valid, result) -> None:
    requests = Requests.empty(1000)
    requests.intended[:] = np.arange(1000) / 100
    requests.sent[:] = requests.intended
    requests.done[:] = requests.intended + 0.01
    requests.outcome[:] = Outcome.OK
    about = About(
        mode="open", protocol="grpc", address="a:1", entries=("m",), seed=1,
        timeout_seconds=1, in_flight=1, payload_sha256="", started_at=0, profile=profile,
    )  # fmt: skip
    run = RunResult.of(about, requests, duration_seconds=10, sender_cpu_seconds=0)
    found = loadgen_verdict.judged(run)
    assert found is not None
    assert found.valid == valid
    assert found.result == pytest.approx(result, rel=0.01)
    assert "iid" in found.caveat
