"""A distributed run for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loadtests.result import Verdict
from loadtests.summary import histogram_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.distributed.coordinator import Coordinator

_NAMES: Final = {
    "from_intended": "latency",
    "from_send": "from send",
    "dispatch_delay": "sender late by",
    "first_response": "first response",
}
_SHOWN_ERRORS: Final = 5


def text(coordinator: Coordinator) -> str:
    """The page."""
    return "\n".join(_lines(coordinator)) + "\n"


def _lines(coordinator: Coordinator) -> Iterator[str]:
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
    for name, title in _NAMES.items():
        yield from histogram_line(title, tally.histograms[name])
    for message, number in list(coordinator.errors().items())[:_SHOWN_ERRORS]:
        yield f"    {number} x {message}"
    reasons = coordinator.reasons()
    yield f"  {Verdict(tuple(reasons))}"
    for warning in coordinator.warnings():
        yield f"  note: {warning}"
