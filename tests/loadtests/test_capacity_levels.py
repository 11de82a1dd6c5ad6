"""The whole result of a search: levels, capacity and doubts."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from exporter.triton.protocol_types import (
    BatchStatistics,
    Duration,
    ModelSpec,
    ModelStatistics,
)
from loadtests.capacity import campaign
from loadtests.capacity.campaign import CampaignSettings, Findings
from loadtests.capacity.estimate import Estimate
from loadtests.capacity.guarded_runs import Bench, Record
from loadtests.capacity.observation import Observation
from loadtests.capacity.search_report import SaturationReport, compiled
from loadtests.capacity.server_side import Phases, phases, saturated
from loadtests.machine_guard import GuardLimits, Watch, Window
from loadtests.plan import Body, Entry, Mix
from loadtests.scenario import Scenario

SCENARIO = Scenario.model_validate(
    {
        "target": {"protocol": "http", "address": "127.0.0.1:1"},
        "models": [{"model": "m"}],
        "profile": {"kind": "poisson"},
        "seed": 3,
        "slo": "p99<20ms",
    }
)
ESTIMATE = Estimate(100.0, 90.0, 120.0, (100.0,), 2.0, 40)
EVIDENCE = SaturationReport(resource="queue", evidence="told")


def bench_of(*records: Record, instances: int = 2) -> Bench:
    spec = ModelSpec("m", "1", (), (), instances=instances)
    mix = Mix((Entry("m", spec, (Body(b"x"),)),))
    bench = Bench(SCENARIO, mix, GuardLimits(), print, lambda: False)
    bench.records += records
    return bench


def record(rate, counts, misses, latencies, *, reasons=(), settled=True, **more):
    cpu = more.pop("cpu", (0.1, None))
    window = Window(0.0, 1.0, 0.0, 0.0, 0.0, *cpu, 0.0)
    return Record(
        observation=Observation(
            rate, np.array(counts), np.array(misses)[:, None], 0.5, 0.5, settled
        ),
        latencies=np.array(latencies),
        due=np.arange(len(latencies)) / rate,
        throughput=more.pop("throughput", rate),
        seconds=2.0,
        phases=more.pop("phases", None),
        watch=Watch((window,), GuardLimits()),
        reasons=tuple(reasons),
    )


def statistics(name, requests, executions, *, version="1", seconds=1.0):
    """Of each request a second in the queue and 2, 3 and 4 in compute."""
    spent = {
        phase: Duration(requests, int(requests * part * seconds * 1e9))
        for phase, part in (
            ("queue", 1),
            ("compute_input", 2),
            ("compute_infer", 3),
            ("compute_output", 4),
        )
    }
    ran = [Duration(executions, executions * part * 10**9) for part in (2, 3, 4)]
    return ModelStatistics(
        name,
        version,
        inference_count=2 * requests,
        execution_count=executions,
        success=Duration(requests, 10 * requests),
        batches=(BatchStatistics(2, *ran),),
        **spent,
    )


def test_phases_are_what_a_request_took_of_the_models_that_both_readings_have() -> None:
    before = [statistics("m", 10, 5), statistics("gone", 90, 90)]
    after = [statistics("new", 70, 70), statistics("m", 30, 10)]
    assert phases(before, after, 18.0) == Phases(
        1.0, 2.0, 3.0, 4.0, requests=20, mean_batch=8.0, busy=5 * 9 / 18.0
    )
    both = (
        [statistics("m", 0, 0, version="2"), *before],
        [
            *after,
            statistics("m", 20, 5, version="2", seconds=2.0),
        ],
    )
    assert phases(*both, 90.0) == Phases(
        1.5, 3.0, 4.5, 6.0, requests=40, mean_batch=8.0, busy=1.0
    )
    found = phases(before, after, 18.0)
    assert (found.compute_seconds, found.queue_share) == (9.0, 0.1)
    assert Phases(0, 0, 0, 0, 1, None, 0).queue_share == 0


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [
        ([], [statistics("m", 5, 5)], 1.0),
        ([statistics("m", 5, 5)], [statistics("m", 5, 5)], 1.0),
        ([statistics("m", 5, 5)], [statistics("m", 4, 4)], 1.0),
        ([statistics("m", 5, 5)], [statistics("m", 6, 6)], 0.0),
    ],
)
def test_without_a_rise_there_are_no_phases(before, after, seconds) -> None:
    assert phases(before, after, seconds) is None


def test_a_batch_is_unknown_where_a_cache_answered_everything() -> None:
    found = phases([statistics("m", 5, 5)], [statistics("m", 6, 5)], 1.0)
    assert (found.mean_batch, found.busy) == (None, 0)


def test_a_longer_warm_up_leaves_out_what_was_due_in_it() -> None:
    one = record(4.0, [4, 4], [0, 0], [0.25, 0.25, math.inf, 0.25, 0.25, 0.25, 1.0])
    seen = dataclasses.replace(one.observation, warmup_seconds=0.5)
    kept = one.settled(seen)
    assert kept.due.tolist() == [0.5, 0.75, 1.0, 1.25, 1.5]
    assert kept.latencies.tolist() == [math.inf, 0.25, 0.25, 0.25, 1.0]
    # Four were answered from 0.5 s to 2 s, one of them due before; the last one later.
    assert kept.throughput == 4 / 1.5


def report(*records, **findings):
    found = Findings("precise", ESTIMATE, 0.004, EVIDENCE, 7, 50.0)
    found = dataclasses.replace(found, **findings)
    settings = CampaignSettings()
    return compiled(bench_of(*records), settings, found, started_at=1.0)


def test_a_level_pools_the_requests_of_its_runs() -> None:
    inside = Phases(0.1, 0.2, 0.3, 0.4, 10, 4.0, 1.5)
    other = Phases(0.3, 0.4, 0.5, 0.6, 10, None, 2.5)
    fast, late = [0.001] * 89, [0.03]
    runs = [
        record(
            *(200.0, [50, 40], [0, 1], [*fast, *late]),
            phases=inside,
            cpu=(0.5, 2.0),
            throughput=190.0,
        ),
        record(
            *(200.0, [5, 5], [1, 2], [0.002, *[math.inf] * 9]),
            phases=other,
            cpu=(0.7, 1.0),
            reasons=["busy"],
            settled=False,
            throughput=180.0,
        ),
        record(100.0, [10], [0], [0.005] * 10),
    ]
    low, high = report(*runs).levels
    assert low.model_dump(exclude={"latency"}) == {
        "requests_per_second": 100.0,
        "runs": 1,
        "requests": 10,
        "throughput": 100.0,
        "throughput_deviation": None,
        "shares": {"p99<20ms": 0.0},
        "share_deviations": {"p99<20ms": None},
        "p99_deviation": None,
        "phases": None,
        "mean_batch": None,
        "busy": None,
        "server_cpu": None,
        "sender_cpu": 0.1,
        "warmup_seconds": 0.5,
        "settled": True,
        "runs_with_reasons": 0,
    }
    assert set(low.latency.model_dump().values()) == {0.005}
    assert (high.requests_per_second, high.runs, high.requests) == (200.0, 2, 100)
    assert high.shares == {"p99<20ms": pytest.approx(0.04)}
    parts = 1 / 90, 3 / 10
    deviation = (parts[1] - parts[0]) / math.sqrt(2)
    assert high.share_deviations == {"p99<20ms": pytest.approx(deviation)}
    assert high.throughput == 185.0
    assert high.throughput_deviation == pytest.approx(10 / math.sqrt(2))
    # Of 100 requests 90 are at most 2 ms, the 91st takes 30 ms and 9 have no answer.
    assert high.latency.model_dump() == {
        "p50": 0.001,
        "p90": 0.002,
        "p95": None,
        "p99": None,
        "p999": None,
    }
    assert high.p99_deviation is None
    assert high.phases.model_dump() == pytest.approx(
        {
            "queue": 0.2,
            "compute_input": 0.3,
            "compute_infer": 0.4,
            "compute_output": 0.5,
        }
    )
    assert (high.mean_batch, high.busy) == (4.0, 2.0)
    assert (high.server_cpu, high.sender_cpu) == (1.5, pytest.approx(0.6))
    assert (high.settled, high.runs_with_reasons) == (False, 1)


@pytest.mark.parametrize("reasons", [[], ["doubt"]])
def test_a_capacity_has_its_interval_and_each_term_alone(reasons) -> None:
    found = report(reasons=reasons)
    assert found.valid == (not reasons)
    assert found.capacity.requests_per_second.model_dump() == {
        "estimate": 100.0,
        "low": 90.0,
        "high": 120.0,
    }
    assert found.capacity.by_term == {"p99<20ms": 100.0}


@pytest.mark.parametrize(
    ("ending", "estimate", "said"),
    [
        (
            "precise",
            ESTIMATE,
            "meets p99<20ms up to 100 requests/s, 95 % interval 90 to",
        ),
        (
            "budget",
            dataclasses.replace(ESTIMATE, low=0.0, high=math.inf),
            "with too few runs for an interval",
        ),
        ("budget", None, "is unknown after runs at 50 to 80 requests/s"),
        ("no_rate_holds", None, "it is missed even at 50 requests/s"),
        ("every_rate_holds", None, "at every rate tried, up to 80 requests/s"),
        ("stopped", None, "stopped before the boundary was known"),
    ],
)
def test_the_conclusion_says_between_which_rates_the_search_was(
    ending, estimate, said
) -> None:
    runs = [record(rate, [10], [0], [0.005] * 10) for rate in (80.0, 50.0)]
    found = report(*runs, ending=ending, estimate=estimate)
    assert said in found.conclusion
    assert (found.capacity is None) == (estimate is None)


def test_without_a_run_the_conclusion_has_no_rate() -> None:
    said = "it is missed even at one request at a time: told"
    found = report(ending="no_rate_holds", estimate=None)
    assert (found.conclusion.endswith(said), found.levels) == (True, ())
    found = report(ending="budget", estimate=None)
    assert "no run counted" in found.conclusion
    of_one_rate = report(
        record(103.0, [10], [0], [0.005] * 10), ending="budget", estimate=None
    )
    assert "after runs at 103 requests/s" in of_one_rate.conclusion


def judged(*runs: Record, instances: int = 2) -> Findings:
    bench = bench_of(*runs, instances=instances)
    return campaign._findings(bench, "precise", ESTIMATE, 1.1)


def run_at(rate, reasons=(), *, settled=True, queue=0.02, busy=1.0):
    inside = Phases(queue, 0.0, 0.01, 0.0, 10, 1.0, busy)
    return record(
        rate, [10], [0], [0.01] * 10, reasons=reasons, settled=settled, phases=inside
    )


def test_only_runs_within_a_level_of_the_boundary_are_held_against_a_result() -> None:
    far = [run_at(rate, ["busy"], settled=False) for rate in (89.0, 112.0) * 3]
    beside = [run_at(rate) for rate in (100 / 1.1, 100.0, 110.0)]
    found = judged(*far, *beside)
    assert (found.repetitions, found.reasons, found.warnings) == (3, [], [])


def test_disturbed_runs_do_not_show_that_no_rate_holds() -> None:
    bench = bench_of(run_at(50.0), *(run_at(10.0, ["busy"]) for _ in range(2)))
    found = campaign._findings(bench, "no_rate_holds", None, 1.1)
    assert found.reasons == ["2 of 2 runs at the lowest rate were disturbed: busy"]
    assert found.repetitions == 2  # as many as show it: it needs no more


@pytest.mark.parametrize(("disturbed", "invalid"), [(0, False), (1, False), (5, True)])
def test_disturbed_runs_are_a_warning_and_many_of_them_a_reason(
    disturbed, invalid
) -> None:
    said = f"{disturbed} of 10 runs near the boundary were disturbed: busy"
    runs = [run_at(100.0, ["busy", "late"] * (n < disturbed)) for n in range(10)]
    found = judged(*runs)
    assert found.reasons == [said] * invalid
    assert found.warnings == [said] * (disturbed > 0 and not invalid)


@pytest.mark.parametrize(("restless", "warned"), [(2, False), (3, True)])
def test_runs_that_did_not_settle_are_a_warning_where_they_are_most(
    restless, warned
) -> None:
    found = judged(*(run_at(100.0, settled=n >= restless) for n in range(4)))
    assert any("did not settle" in warning for warning in found.warnings) == warned


def test_what_is_saturated_is_read_at_the_lowest_rate_above_the_boundary() -> None:
    low, over, far = run_at(90.0, queue=0), run_at(105.0, busy=1.9), run_at(200.0)
    assert judged(far, low, over).saturation.resource == "compute"
    assert judged(low).saturation.resource == "unknown"
    assert judged(far, low, over, instances=0).saturation.resource == "queue"
    assert judged().saturation.evidence == "no run counted"


def machine(sender: float, server: float | None) -> Watch:
    window = Window(0.0, 1.0, 0.0, 0.0, 0.0, sender, server, 0.0)
    return Watch((window,), GuardLimits())


def server(queue_seconds: float, busy: float) -> Phases:
    """One whose requests take 10 ms beside the queue."""
    return Phases(queue_seconds, 0.001, 0.008, 0.001, 100, 1.0, busy)


IDLE = machine(0.1, 0.1)


QUEUED = server(0.02, 1.5)


@pytest.mark.parametrize(
    ("phase", "watch", "instances", "expected"),
    [
        (QUEUED, machine(0.81, 4.0), 2, "sender"),
        (QUEUED, machine(0.8, 3.41), 2, "server cpu"),
        (QUEUED, machine(0.8, 3.4), 2, "compute"),
        (QUEUED, machine(0.8, None), 2, "compute"),
        (QUEUED, None, 2, "compute"),
        (None, IDLE, 2, "unknown"),
        (server(0.02, 1.41), IDLE, 2, "compute"),
        (server(0.02, 1.4), IDLE, 2, "queue"),
        # How many instances there are is not known.
        (QUEUED, IDLE, None, "queue"),
        (server(0.0044, 0.1), IDLE, 2, "queue"),
        (server(0.0042, 0.1), IDLE, 2, "unknown"),
    ],
)
def test_the_first_of_sender_processors_instances_and_queue_is_named(
    phase, watch, instances, expected
) -> None:
    found = saturated(phase, watch, instances=instances, cpus=4)
    assert found.resource == expected


@pytest.mark.parametrize(
    ("instances", "executed"),
    [(2, "its 2 instances executed 75 %"), (1, "its 1 instance executed 150 %")],
)
def test_the_evidence_has_the_figures(instances, executed) -> None:
    assert saturated(QUEUED, IDLE, instances=instances, cpus=4).evidence == (
        f"{executed} of the time; 66.7 % of a request's time in the server "
        "was spent in the queue (20 ms; compute 10 ms)"
    )
