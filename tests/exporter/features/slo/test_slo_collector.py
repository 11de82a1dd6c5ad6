"""All that is exposed of an objective: events, burn rates, and the budget that is left."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from accesses import access_to

from exporter import catalogue
from exporter.features.slo.objectives import AvailabilityObjective, LatencyObjective
from exporter.features.slo.slo_collector import WINDOWS, SloSettings
from exporter.samples import Sample


def test_an_objective_is_exposed_with_its_events_burn_rates_and_budget() -> None:
    now, exposed = 0.0, []
    access = access_to(
        SimpleNamespace(), clock=lambda: now, exposed=lambda: list(exposed)
    )
    objectives = (
        AvailabilityObjective(name="answers", objective_ratio=0.9, window_days=1),
        LatencyObjective(name="fast", objective_ratio=0.99, threshold_seconds=1),
    )
    collector = SloSettings(objectives=objectives).build(access)

    def collected() -> dict[tuple[str, ...], float]:
        return {(s.spec.name, *s.labels): s.value for s in collector.collect()}

    def of(name: str, ratio: float, good: float, bad: float) -> dict:
        return {
            (catalogue.SLO_OBJECTIVE.name, name): ratio,
            (catalogue.SLO_EVENTS.name, name, "good"): good,
            (catalogue.SLO_EVENTS.name, name, "bad"): bad,
            (catalogue.SLO_DOUBTFUL.name, name): 0,
        }

    fast = of("fast", 0.99, 0, 0)
    assert collected() == of("answers", 0.9, 0, 0) | fast

    now = 60.0
    for outcome, number in (("success", 98), ("failure", 2)):
        exposed.append(Sample(catalogue.REQUESTS, number, ("m", "1", outcome)))
    burning = {(catalogue.SLO_BURN_RATE.name, "answers", w): 0.2 for w in WINDOWS}
    left = {(catalogue.SLO_BUDGET.name, "answers"): 0.8}
    expected = of("answers", 0.9, 98, 2) | burning | left | fast
    assert collected() == pytest.approx(expected)

    # Two days later nothing of it lies in the budget's window of one.
    now = 2 * 86_400.0
    found = collected()
    assert left.keys().isdisjoint(found)
    assert found[catalogue.SLO_BURN_RATE.name, "answers", "3d"] == pytest.approx(0.2)
    assert (catalogue.SLO_BURN_RATE.name, "answers", "1d") not in found
