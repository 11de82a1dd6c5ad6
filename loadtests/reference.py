"""The reference level: one request at a time, before a run and after it.

Where the two differ, the machine is not what it was, whatever the run in between says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loadtests.engine import Options, run_closed
from loadtests.guard import GuardLimits, drifted

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.mix import Mix
    from loadtests.result import RunResult
    from loadtests.scenario import Scenario


def between_levels(
    scenario: Scenario,
    mix: Mix,
    seconds: float,
    run: Callable[[], RunResult],
    *,
    strict: bool,
) -> RunResult:
    """The run, with the level from so many seconds before and after it.

    Where it moved by more than the guard allows the run says so, and is INVALID if it
    is `strict`.
    """
    before = _level(scenario, mix, seconds)
    result = run()
    if result.about.interrupted:
        return result
    after = _level(scenario, mix, seconds)
    result = replace(result, reference_seconds=(before, after))
    if before is None or after is None:
        told: str | None = "one request at a time was not answered well: no reference"
    else:
        told = drifted(before, after, GuardLimits())
    if told is None:
        return result
    return result.invalid(told) if strict else result.warned(told)


def _level(scenario: Scenario, mix: Mix, seconds: float) -> float | None:
    """Median latency in seconds; None where half were not answered rightly."""
    found = run_closed(
        scenario.target.target(),
        mix,
        concurrency=1,
        duration_seconds=seconds,
        options=Options(timeout_seconds=scenario.timeout_seconds, seed=scenario.seed),
    ).quantile(0.5)
    return found if found is not None and np.isfinite(found) else None
