"""Runs an experiment: every repetition, each on a new target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtests.chaos.running.repetition import Repetition, RunOptions
from loadtests.chaos.targets.chaos_target import require_allowed

if TYPE_CHECKING:
    from loadtests.chaos.experiment import Loaded
    from loadtests.chaos.measuring.observations import Evidence

__all__ = ["RunOptions", "run"]


def run(loaded: Loaded, options: RunOptions) -> list[Evidence]:
    """Run every repetition of an experiment; return the evidence of each.

    The first that was interrupted or aborted is the last.

    Raises:
        NotAllowedError: its target may not be broken.
        FaultRefusedError: a fault cannot be injected there; nothing was touched.
        LoadError, TritonwatchError: the target or the load does not come up.
    """
    extension = loaded.experiment.extension
    require_allowed(extension.target, options.allow)
    found: list[Evidence] = []
    for repetition in range(extension.repetitions):
        found.append(Repetition(loaded, options, repetition).run())
        if found[-1].status in {"interrupted", "aborted"}:
            break
    return found
