"""The efficiency curve: calibrate, then 100, 90 … 10 % of that and idle.

Levels and score are SPECpower_ssj2008's. Its calibration, too: the mean of the last two
of three runs at the highest speed, here in a closed loop.
"""

from __future__ import annotations

import itertools
import math
from statistics import mean
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.efficiency import efficiency_report
from loadtests.efficiency.efficiency_report import (
    EfficiencyLevel,
    EfficiencyReport,
    LevelPower,
)
from loadtests.engine import Options
from loadtests.execute import execute_watched
from loadtests.profiles.profile import Phase
from loadtests.profiles.rate_profiles import SpecPower
from loadtests.result import Outcome, Verdict
from loadtests.scenario import ClosedLoop
from pages import units

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadtests.efficiency.metering import MeteredRun, PowerMeter
    from loadtests.machine_guard import Watch
    from loadtests.plan import Mix
    from loadtests.result import RunResult
    from loadtests.scenario import Scenario

_CALIBRATIONS: Final = 3
_DISCARDED: Final = 1
_MOST_BLOCKS: Final = 20
_MOST_MISSED: Final = 0.1
_BLOCK_SECONDS: Final = 1.0


def measure(
    run: MeteredRun,
    mix: Mix,
    *,
    level_seconds: float,
    maximum_per_second: float | None,
    follow: Callable[[Sequence[Phase]], None],
) -> EfficiencyReport:
    """Run the levels; the scenario gives target and requests, its profile is not used.

    Args:
        run: what is measured.
        mix: its requests.
        level_seconds: of each level; SPECpower takes 240.
        maximum_per_second: rate that counts as 100 %, instead of calibrating.
        follow: called with the phases that start now, for announcements.

    Raises:
        LoadError: there is no server.
    """
    scenario, meter = run.scenario, run.meter
    calibrations: list[RunResult] = []
    maximum = maximum_per_second
    if maximum is None:
        follow((Phase("calibration", 0.0, math.inf, None),))
        calibrations = _calibrated(run, mix, level_seconds)
        maximum = mean(one.throughput for one in calibrations[_DISCARDED:])
    run.log(f"100 % is {maximum:.5g} requests a second")
    profile = SpecPower(
        maximum_requests_per_second=max(maximum, 1e-3),
        level_seconds=level_seconds,
        idle_seconds=level_seconds,
    )
    follow(profile.phases())
    result, watch = execute_watched(
        scenario.model_copy(update={"profile": profile}),
        mix,
        Options(stop=run.stop),
    )
    began = result.about.started_at
    meter.wait_past(began + profile.length_seconds, run.stop)
    rows = _rows(scenario)
    levels = tuple(
        _level(
            phase,
            (phase.requests_per_second or 0.0) / maximum if maximum else 0.0,
            result,
            meter,
            rows,
        )
        for phase in profile.phases()
    )
    about = result.about
    verdict = verdict_of(levels, result, calibrations[_DISCARDED:], profile, watch)
    return EfficiencyReport(
        models=tuple(model.model for model in scenario.models),
        maximum_per_second=maximum,
        calibrations=tuple(one.throughput for one in calibrations),
        concurrency=run.concurrency,
        level_seconds=level_seconds,
        sources=meter.sources,
        descriptions=meter.descriptions,
        levels=levels,
        score={boundary: score(levels, boundary) for boundary in meter.sources},
        seed=scenario.seed,
        valid=verdict.valid,
        reasons=verdict.reasons,
        warnings=verdict.warnings,
        versions=dict(about.versions),
        hardware=dict(about.hardware),
    )


def score(levels: tuple[EfficiencyLevel, ...], boundary: str) -> float:
    """Sum of the rates over sum of the powers, of all levels and idle."""
    watts = sum(p.watts for lv in levels for p in lv.power if p.boundary == boundary)
    rates = sum(level.inferences_per_second for level in levels)
    return rates / watts if watts > 0 else 0.0


def _calibrated(run: MeteredRun, mix: Mix, level_seconds: float) -> list[RunResult]:
    loop = ClosedLoop(concurrency=run.concurrency, duration_seconds=level_seconds)
    found = []
    for number in range(_CALIBRATIONS):
        run.log(f"calibrating, {number + 1} of {_CALIBRATIONS}")
        result, _ = execute_watched(
            run.scenario.model_copy(update={"profile": loop}),
            mix,
            Options(stop=run.stop),
        )
        found.append(result)
    return found


def _rows(scenario: Scenario) -> float:
    """Inferences of a request, in the mean of the mix."""
    whole = sum(model.weight for model in scenario.models)
    return sum(model.batch * model.weight for model in scenario.models) / whole


def _level(
    phase: Phase, load: float, result: RunResult, meter: PowerMeter, rows: float
) -> EfficiencyLevel:
    requests = result.requests
    seconds = phase.end_seconds - phase.start_seconds
    due = (requests.intended >= phase.start_seconds) & (
        requests.intended < phase.end_seconds
    )
    right = requests.outcome == Outcome.OK
    offered = int(np.count_nonzero(due))
    blocks = max(1, min(_MOST_BLOCKS, int(seconds / _BLOCK_SECONDS)))
    edges = np.linspace(phase.start_seconds, phase.end_seconds, blocks + 1)
    # By when they were answered: that is when they took their energy.
    answered, _ = np.histogram(requests.done[right], edges)
    missed = offered - int(np.count_nonzero(due & right))
    return EfficiencyLevel(
        name=phase.name,
        load_ratio=load,
        offered_per_second=offered / seconds,
        inferences_per_second=float(answered.sum()) * rows / seconds,
        miss_ratio=missed / offered if offered else 0.0,
        power=tuple(
            _power(boundary, edges + result.about.started_at, answered * rows, meter)
            for boundary in meter.sources
        ),
    )


def _power(
    boundary: str,
    edges: np.ndarray[tuple[int], np.dtype[np.float64]],
    answered: np.ndarray[tuple[int], np.dtype[np.float64]],
    meter: PowerMeter,
) -> LevelPower:
    drawn = [
        meter.drawn(boundary, float(start), float(end))
        for start, end in itertools.pairwise(edges)
    ]
    joules = np.array([item.joules for item in drawn])
    watts = float(joules.sum() / (edges[-1] - edges[0]))
    inferences = float(answered.sum())
    return LevelPower(
        boundary=boundary,
        watts=watts,
        known=all(item.known for item in drawn),
        joules_per_inference=efficiency_report.ratio_of_sums(joules, answered, seed=1)
        if inferences
        else None,
        inferences_per_second_per_watt=inferences / float(joules.sum())
        if joules.sum() > 0
        else 0.0,
    )


def verdict_of(
    levels: tuple[EfficiencyLevel, ...],
    result: RunResult,
    calibrations: Sequence[RunResult],
    profile: SpecPower,
    watch: Watch,
) -> Verdict:
    """Return the reasons that invalidate the curve: the run, a level, calibration, power."""
    reasons, warnings = list(result.verdict.reasons), list(result.verdict.warnings)
    if not reasons:
        # A few disturbed windows of the whole run may be all of one level.
        reasons += _disturbed_levels(profile.phases(), watch)
    for calibration in calibrations:
        reasons += [f"calibration: {why}" for why in calibration.verdict.reasons]
        warnings += [f"calibration: {why}" for why in calibration.verdict.warnings]
    # The failed requests took energy, too: it would count as that of the answers.
    reasons += [
        f"level {level.name}: {units.percent(level.miss_ratio)} of the requests had no "
        "correct answer"
        for level in levels
        if level.miss_ratio > _MOST_MISSED
    ]
    if not all(power.known for level in levels for power in level.power):
        reasons.append("power was not known all the time")
    if result.about.interrupted:
        reasons.append("it was interrupted")
    return Verdict(tuple(dict.fromkeys(reasons)), tuple(dict.fromkeys(warnings)))


def _disturbed_levels(phases: Sequence[Phase], watch: Watch) -> list[str]:
    """The levels at which the machine was disturbed for more than the guard allows."""
    return [
        f"level {phase.name}: {reason}"
        for phase in phases
        for reason in watch.between(phase.start_seconds, phase.end_seconds)
        .verdict()
        .reasons
    ]
