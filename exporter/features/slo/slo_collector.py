"""Evaluates exposed samples against the configured objectives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import Field

from exporter import catalogue
from exporter.access.collector_base import Access, CollectorSettings
from exporter.features.slo.error_budget import WINDOWS, Budget
from exporter.features.slo.objectives import Objective, SignalObjective
from exporter.features.slo.slo_events import EventCounter
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from exporter.samples import AnySample

_DAY_SECONDS: Final = 86400.0


class SloSettings(CollectorSettings):
    """Built from `slos:`; observes once every interval."""

    objectives: tuple[Objective, ...] = Field(default=())
    """The objectives, with presets expanded."""

    def build(self, access: Access) -> SloCollector:
        """The collector."""
        return SloCollector(self, access)


class SloCollector:
    """Counts good and bad events and keeps the budgets."""

    def __init__(self, settings: SloSettings, access: Access) -> None:
        self._access = access
        self._objectives = [
            (
                EventCounter(objective),
                Budget(objective.objective_ratio, objective.window_days * _DAY_SECONDS),
            )
            for objective in settings.objectives
        ]

    def collect(self) -> Sequence[AnySample]:
        """Read all exposed samples once, and return the state of the objectives."""
        now = self._access.clock()
        exposed = list(self._access.exposed())
        samples: list[AnySample] = []
        for counter, budget in self._objectives:
            counter.add(exposed, now)
            budget.note(now, counter.good, counter.bad)
            samples += _samples(counter, budget, now)
            samples += doubt(counter.objective, exposed)
        return samples


def doubt(objective: Objective, exposed: Iterable[AnySample]) -> Sequence[AnySample]:
    """Return whether requests that count as successes are known to fail."""
    if isinstance(objective, SignalObjective) or objective.source != "requests":
        return ()
    is_doubtful = any(
        sample.spec is catalogue.OUTCOMES_DOUBTFUL
        and isinstance(sample, Sample)
        and sample.value
        and objective.matches(sample.labels[0])
        for sample in exposed
    )
    return (Sample(catalogue.SLO_DOUBTFUL, is_doubtful, (objective.name,)),)


def _samples(counter: EventCounter, budget: Budget, now: float) -> Sequence[AnySample]:
    name = counter.objective.name
    samples = [
        Sample(catalogue.SLO_OBJECTIVE, counter.objective.objective_ratio, (name,)),
        Sample(catalogue.SLO_EVENTS, counter.good, (name, "good")),
        Sample(catalogue.SLO_EVENTS, counter.bad, (name, "bad")),
    ]
    for window, seconds in WINDOWS.items():
        rate = budget.burn_rate(now, seconds)
        if rate is not None:
            samples.append(Sample(catalogue.SLO_BURN_RATE, rate, (name, window)))
    remaining = budget.remaining_ratio(now)
    if remaining is not None:
        samples.append(Sample(catalogue.SLO_BUDGET, remaining, (name,)))
    return samples
