"""Runs a scenario, for the command and for experiments; Locust takes its options from here."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from loadtests.engine import Options, run_closed, run_open
from loadtests.machine_guard import Guard, GuardLimits, guarded
from loadtests.profiles.profile import arrivals_of
from loadtests.scenario import ClosedLoop

if TYPE_CHECKING:
    from loadtests.machine_guard import Watch
    from loadtests.mix import Mix
    from loadtests.result import RunResult
    from loadtests.scenario import Scenario


def execute_watched(
    scenario: Scenario, mix: Mix, options: Options | None = None
) -> tuple[RunResult, Watch]:
    """Execute while the machine is watched; disturbances are in the verdict.

    The watch's times count from the start of the run.
    """
    with Guard(scenario.target.target(), GuardLimits()) as guard:
        result = execute(scenario, mix, options)
    origin = time.monotonic() - (time.time() - result.about.started_at)
    watch = guard.watch(origin)
    return guarded(result, watch, strict=True), watch


def execute(scenario: Scenario, mix: Mix, options: Options | None = None) -> RunResult:
    """Send the requests of the scenario, on its schedule.

    The scenario overrides timeout, seed, SLO and profile of `options`.

    Raises:
        LoadError: there is no server.
        PlanError: the profile is more than one run can hold.
    """
    result = _sent(scenario, mix, options)
    about = replace(
        result.about,
        schedule_seconds=scenario.profile.length_seconds,
        goodput=scenario.goodput or "",
        slo=scenario.slo or "",
    )
    return replace(result, about=about)


def options_of(scenario: Scenario, options: Options) -> Options:
    """Return the options with timeout, seed, SLO and profile of the scenario."""
    objective = scenario.objective()
    return replace(
        options,
        timeout_seconds=scenario.timeout_seconds,
        seed=scenario.seed,
        slo_seconds=None if objective is None else objective.limit_seconds,
        profile=scenario.profile.model_dump(mode="json"),
    )


def _sent(scenario: Scenario, mix: Mix, options: Options | None) -> RunResult:
    profile, target = scenario.profile, scenario.target.target()
    options = options_of(scenario, options or Options())
    if isinstance(profile, ClosedLoop):
        return run_closed(
            target,
            mix,
            concurrency=profile.concurrency,
            duration_seconds=profile.duration_seconds,
            options=options,
        )
    arrivals = arrivals_of(profile, scenario.seed)
    return run_open(
        target, mix, arrivals, in_flight=scenario.in_flight, options=options
    )
