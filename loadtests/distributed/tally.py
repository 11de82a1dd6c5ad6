"""A distributed run so far: counts and histograms that merge exactly."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from exporter.histograms.histogram import Histogram
from loadtests.result import HISTOGRAMS, Outcome, histograms_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadtests.result import Requests


@dataclass(slots=True)
class Tally:
    """Requests that ended, by outcome, and their times."""

    outcomes: Counter[str] = field(default_factory=Counter)
    histograms: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram() for name in HISTOGRAMS}
    )

    def add(self, requests: Requests) -> None:
        """Count requests that ended."""
        for outcome in Outcome:
            found = requests.count(outcome)
            if found:
                self.outcomes[outcome.name.lower()] += found
        for name, histogram in histograms_of(requests).items():
            self.histograms[name].merge(histogram)

    def merge(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.outcomes.update(other.outcomes)
        for name, histogram in other.histograms.items():
            self.histograms[name].merge(histogram)

    @property
    def count(self) -> int:
        """Requests that ended."""
        return sum(self.outcomes.values())

    def to_state(self) -> dict[str, Any]:
        """Return it as values for JSON or msgpack."""
        return {
            "outcomes": dict(self.outcomes),
            "histograms": {n: h.to_state() for n, h in self.histograms.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Tally:
        """The tally that `to_state` described.

        Raises:
            ValueError: it contradicts itself.
        """
        known = {outcome.name.lower() for outcome in Outcome}
        outcomes = state["outcomes"]
        if not outcomes.keys() <= known:
            raise ValueError(f"found outcomes {sorted(outcomes)}; known are {known}")
        return cls(
            Counter({name: int(number) for name, number in outcomes.items()}),
            {
                name: Histogram.from_state(state["histograms"][name])
                for name in HISTOGRAMS
            },
        )
