"""A capacity search on a server: where it begins, which runs count, and how it can end."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import numpy as np
import pytest
from fake_triton import INTERNAL, FakeModel, FakeTriton, Slow
from waiting import patience

from exporter.cli import main
from loadtests.capacity import campaign
from loadtests.capacity.campaign import CampaignSettings
from loadtests.capacity.guarded_runs import Bench
from loadtests.capacity.server_side import ServerSide
from loadtests.errors import LoadError
from loadtests.execute import prepared
from loadtests.load_objective import parse
from loadtests.machine_guard import GuardLimits
from loadtests.payloads.bodies import Row, body_of
from loadtests.plan import Mix
from loadtests.result import Outcome, Requests
from loadtests.scenario import Scenario
from loadtests.target import Target

ALONE_SECONDS = 0.05
BUSY_MACHINE = {
    "other_cpu_ratio": 64.0,
    "steal_ratio": 1.0,
    "pressure_ratio": 1.0,
    "sender_cpu_ratio": 1.0,
    "clock_step_seconds": 60.0,
}
"""Limits that no machine on which tests run exceeds."""


class Searched:
    """A model that takes `ALONE_SECONDS`, and what a search of its capacity does."""

    def __init__(self, fake, slo, **settings):
        scenario = Scenario.model_validate(
            {
                "target": {"address": fake.grpc},
                "models": [{"model": "m"}],
                "profile": {"kind": "poisson"},
                "slo": slo,
            }
        )
        self.fake, self.told, self.entered = fake, [], []
        guard = {**BUSY_MACHINE, **settings.pop("guard", {})}
        self.settings = CampaignSettings.model_validate({**settings, "guard": guard})
        self.bench = Bench(
            scenario,
            prepared(scenario),
            self.settings.guard,
            self.told.append,
            lambda: False,
            self.entered.append,
        )
        self.bench.unloaded_p50 = ALONE_SECONDS

    def run(self):
        return campaign.run(self.bench, self.settings)

    @property
    def requests(self):
        return sum(received.operation == "infer" for received in self.fake.requests)


@pytest.fixture
def searched():
    with (
        FakeTriton([FakeModel("m"), FakeModel("n")]) as fake,
        contextlib.ExitStack() as stack,
    ):
        fake.on("infer").reply(Slow(ALONE_SECONDS))

        def start(slo="p99<5s", **settings):
            found = Searched(fake, slo, **settings)
            stack.callback(found.bench.server.close)
            return found

        yield start


@pytest.mark.parametrize("most_rate", [30.0, 100.0])
def test_a_search_begins_beyond_one_request_at_a_time_where_many_are_answered_at_once(
    searched, most_rate
) -> None:
    search = searched()
    rate = campaign.ramped(search.bench, 0.6 / ALONE_SECONDS, most_rate)
    assert 1 / ALONE_SECONDS < rate <= most_rate
    assert search.entered == ["ramp"]
    assert search.told[-1] == f"the search begins at {rate:.4g} requests/s"
    # Such runs are no part of what is found.
    assert not search.bench.records


def test_a_server_is_quiet_up_to_twice_its_unloaded_latency(searched) -> None:
    bench = searched().bench
    assert bench.quiet(4.0, 1.0, 0)
    bench.unloaded_p50 = 0.4 * ALONE_SECONDS
    bench.stopped = lambda: True  # do not wait until it is quiet
    assert not bench.quiet(4.0, 1.0, 0)


def test_a_run_is_measured_and_followed_by_requests_that_show_empty_queues(
    searched,
) -> None:
    search = searched("p99<5s,errors<50%")
    before = search.requests
    found = search.bench.measure(40.0, 1.0, 1)
    (record,) = search.bench.records
    assert found is record.observation
    assert (found.rate, found.warmup_seconds) == (40.0, 0.25)
    sent = record.phases.requests
    assert 15 < sent < 70
    assert search.requests - before == sent + 3
    # A quarter of so short a run is warm-up.
    assert record.due.min() >= 0.25
    assert found.requests == record.latencies.size < sent
    assert not found.misses.any()
    assert record.latencies.min() >= 0.99 * ALONE_SECONDS
    assert 0 < record.throughput < 1.25 * found.requests / 0.75
    assert search.told == ["40/s for 1 s: 0 % miss p99<5s, 0 % miss errors<50%"]
    # The same arrivals for the same seed and run.
    digest = search.bench.schedule_sha256
    again = searched()
    again.bench.measure(40.0, 1.0, 1)
    assert again.bench.schedule_sha256 == digest
    again.bench.measure(40.0, 1.0, 2)
    assert again.bench.schedule_sha256 != digest


def test_three_disturbed_runs_are_repeated_and_later_ones_count(searched) -> None:
    search = searched(guard={"sender_cpu_ratio": 1e-6, "window_seconds": 0.2})
    bench = search.bench
    found = [bench.measure(20.0, 0.6, index) for index in range(4)]
    assert [run is None for run in found] == [True] * 3 + [False]
    assert (len(bench.rejected), len(bench.records)) == (3, 1)
    assert all(record.reasons for record in (*bench.rejected, *bench.records))
    assert search.told[0].startswith("20/s rejected: a busy sender disturbed ")


def test_a_search_in_which_every_rate_holds_ends_at_the_highest(searched) -> None:
    # No budget that a busy machine uses up.
    brief = {"budget_seconds": 600.0, "bracket_seconds": 0.5, "most_rate": 30.0}
    search = searched(search=brief, reference_seconds=0.5)
    found = search.run()
    assert search.entered == ["reference", "ramp", "search"]
    assert (found.ending, found.estimate) == ("every_rate_holds", None)
    assert found.unloaded_p50 >= 0.99 * ALONE_SECONDS
    assert search.bench.unloaded_p50 == found.unloaded_p50
    assert search.bench.records[-1].observation.rate == 30.0
    assert (found.repetitions, found.reasons) == (0, [])
    assert found.spent_seconds > 1.0


def test_counters_are_those_of_the_searched_models_of_which_triton_counts_the_time(
    searched,
) -> None:
    fake = searched().fake

    def read(target, **options):
        with contextlib.closing(ServerSide(target, frozenset("m"), **options)) as side:
            return [entry.name for entry in side.statistics()]

    assert read(Target("grpc", fake.grpc)) == ["m"]
    assert read(Target("grpc", fake.grpc), streamed=True) == []
    assert read(Target("http", fake.http)) == []


def test_the_command_reports_an_objective_that_holds_at_no_rate(
    searched, tmp_path, capsys
) -> None:
    file = tmp_path / "capacity.json"
    command = f"load capacity --address {searched().fake.grpc} --model m --json {file}"
    assert main([*command.split(), "--slo", "p99<10ms"]) == 1
    shown = capsys.readouterr()
    assert "it is missed even at one request at a time" in shown.out
    assert "(median), longer than p99<10ms allows" in shown.out
    assert "s  one request at a time: p50 " in shown.err
    found = json.loads(file.read_text("utf-8"))
    assert (found["ending"], found["valid"], found["levels"]) == (
        *("no_rate_holds", True, []),
    )


def test_a_server_without_correct_answers_has_no_capacity(searched) -> None:
    search = searched(reference_seconds=0.5)
    search.fake.on("infer").reply(INTERNAL)
    with pytest.raises(
        LoadError, match=r"half of \d+ were not answered .*the backend failed"
    ):
        search.run()


def test_an_objective_that_no_answer_can_show_is_refused_before_the_search() -> None:
    with FakeTriton([FakeModel("m", responses=1)]) as fake:
        scenario = Scenario.model_validate(
            {
                "target": {"address": fake.grpc},
                "models": [{"model": "m"}],
                "profile": {"kind": "poisson"},
                "slo": "p99<5s,itl_p95<50ms",
            }
        )
        settings = CampaignSettings(reference_seconds=0.2)
        bench = Bench(
            scenario, prepared(scenario), settings.guard, print, lambda: False
        )
        with pytest.raises(
            LoadError, match="itl_p95<50ms: every answer had a single response"
        ):
            campaign.run(bench, settings)
        bench.server.close()


def streams(first_seconds: float, seconds: float, count: int = 5) -> Requests:
    """Streams of 30 responses each, sent one at a time."""
    requests = Requests.empty(count)
    requests.intended[:] = requests.sent[:] = np.arange(count) * 2 * seconds
    requests.first[:] = requests.sent + first_seconds
    requests.done[:] = requests.sent + seconds
    requests.outcome[:] = Outcome.OK
    requests.responses[:] = 30
    requests.longest_gap[:] = (seconds - first_seconds) / 29
    return requests


@pytest.mark.parametrize(
    ("slo", "reason"),
    [
        ("ttft_p99<500ms,itl_p95<150ms", ""),
        ("ttft_p99<60ms", "ttft of one request at a time is 70 ms (median)"),
        ("p99<3s,ttft_p99<75ms,errors<1%", ""),
        ("p99<2s,ttft_p99<75ms", "latency of one request at a time is 2.97e+03 ms"),
        ("itl_p95<50ms", "itl of one request at a time is 100 ms (median)"),
    ],
)
def test_each_limit_is_compared_with_what_it_limits(slo, reason) -> None:
    found = campaign.out_of_reach(parse(slo), streams(0.07, 2.97))
    assert reason in found
    assert bool(reason) == bool(found)


def test_a_stream_longer_than_its_limit_of_the_first_response_is_awaited(
    loaded, target_of, mix_of
) -> None:
    (entry,) = mix_of(target_of(loaded, "grpc"), "stream", variants=1).entries
    values = np.ones(5, np.float32)
    body = body_of(entry.spec, Row({"values": values}, {}, {"delay_ms": 300}), "grpc")
    mix = Mix((replace(entry, bodies=(body,), style="stream"),))
    scenario = Scenario.model_validate(
        {
            "target": {"address": loaded.grpc},
            "models": [{"model": "stream"}],
            "profile": {"kind": "poisson"},
            "slo": "ttft_p99<100ms",
            "timeout_seconds": patience(5),
        }
    )
    bench = Bench(scenario, mix, GuardLimits(), print, lambda: False)
    result = bench.alone(0.5, 1)
    bench.server.close()
    assert result.requests.outcome.tolist() == [Outcome.OK]
    assert result.requests.done[0] > 1.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "found no --slo"),
        (("--slo", "p99<1s", "--repetitions", "2"), "greater than or equal to 3"),
        (("--slo", "p99<1s", "--json", "/nowhere/c.json"), "no such folder: /nowhere"),
    ],
)
def test_wrong_usage_says_what_would_be_right(fake, capsys, options, said) -> None:
    given = ("--address", fake.grpc, "--model", "fake", *options)
    assert main(["load", "capacity", *given]) == 2
    assert said in capsys.readouterr().err
