"""The rate at which a capacity search begins."""

from __future__ import annotations

import pytest
from fake_triton import FakeModel, FakeTriton, Slow

from loadtests.capacity import campaign
from loadtests.capacity.campaign import CampaignSettings
from loadtests.capacity.capacity_command import bench_of
from loadtests.errors import LoadError
from loadtests.prepare import prepared
from loadtests.scenario import Scenario

ALONE_SECONDS = 0.05


@pytest.mark.parametrize("most_rate", [30.0, 100.0])
def test_a_search_begins_beyond_one_request_at_a_time_where_many_are_answered_at_once(
    most_rate,
) -> None:
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer").reply(Slow(ALONE_SECONDS))
        scenario = Scenario.model_validate(
            {
                "target": {"address": fake.grpc},
                "models": [{"model": "m"}],
                "profile": {"kind": "poisson"},
                "slo": "p99<5s",
            }
        )
        told: list[str] = []
        bench = bench_of(
            scenario, CampaignSettings(), prepared(scenario), told.append, lambda: False
        )
        bench.unloaded_p50 = ALONE_SECONDS
        entered: list[str] = []
        bench.enter = entered.append
        rate = campaign.ramped(bench, 0.6 / ALONE_SECONDS, most_rate)
        bench.server.close()
    assert 1 / ALONE_SECONDS < rate <= most_rate
    assert entered == ["ramp"]
    assert told[-1] == f"the search begins at {rate:.4g} requests/s"
    # Such runs are no part of what is found.
    assert not bench.records


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
        bench = bench_of(
            scenario, settings, prepared(scenario), lambda _: None, lambda: False
        )
        with pytest.raises(
            LoadError, match="itl_p95<50ms: every answer had a single response"
        ):
            campaign.run(bench, settings)
        bench.server.close()
