"""Text of a run over several workers, at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtests.result import Verdict
from loadtests.run_text import NAMES, SHOWN_ERRORS, histogram_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.distributed.coordinator import Coordinator


def distributed_text(coordinator: Coordinator) -> str:
    """Return the page of a run over several workers."""
    return "\n".join(_distributed(coordinator)) + "\n"


def _distributed(coordinator: Coordinator) -> Iterator[str]:
    tally, scenario = coordinator.tally(), coordinator.scenario
    models = ", ".join(model.model for model in scenario.models)
    yield ""
    yield (
        f"{scenario.name}: {models} over {scenario.target.protocol}, "
        f"{scenario.profile.kind}, {len(coordinator.shares)} workers, "
        f"seed {scenario.seed}"
    )
    outcomes = ", ".join(f"{n} {name}" for name, n in sorted(tally.outcomes.items()))
    yield f"  requests       {tally.count}: {outcomes or 'none ended'}"
    for name, title in NAMES.items():
        yield from histogram_line(title, tally.histograms[name])
    for message, number in list(coordinator.errors().items())[:SHOWN_ERRORS]:
        yield f"    {number} x {message}"
    reasons = coordinator.reasons()
    yield f"  {Verdict(tuple(reasons))}"
    for warning in coordinator.warnings():
        yield f"  note: {warning}"
