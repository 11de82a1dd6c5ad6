"""Whether the events of an objective can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter import catalogue
from exporter.samples import Sample
from exporter.slo.objectives import SignalObjective

if TYPE_CHECKING:
    from collections.abc import Iterable

    from exporter.samples import AnySample
    from exporter.slo.objectives import Objective

DOUBTFUL_SECONDS: Final = 600.0
"""So long after the last failure that was booked as a success."""


class Doubt:
    """Notes failures that Triton booked as successes of the models of one objective."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._seen: dict[tuple[str, ...], float] = {}
        self._raised_at: float | None = None

    @property
    def is_possible(self) -> bool:
        """Whether the objective rests on what Triton counts as success and failure."""
        objective = self._objective
        return (
            not isinstance(objective, SignalObjective)
            and objective.source == "requests"
        )

    def look(self, samples: Iterable[AnySample], now: float) -> bool:
        """Whether the events are doubtful now; `now` is monotonic seconds."""
        for sample in samples:
            if (
                isinstance(sample, Sample)
                and sample.spec is catalogue.FAILURES_BOOKED_AS_SUCCESS
                and self._objective.matches(sample.labels[0])
            ):
                if sample.value > self._seen.get(sample.labels, 0.0):
                    self._raised_at = now
                self._seen[sample.labels] = sample.value
        return self._raised_at is not None and now - self._raised_at < DOUBTFUL_SECONDS
