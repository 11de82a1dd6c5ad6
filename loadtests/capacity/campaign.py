"""A whole search: the server alone, a ramp, the boundary, and the end."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import Field

from exporter.settings import Settings
from loadtests.capacity.estimate import RESAMPLES, Estimate
from loadtests.capacity.search import Search, SearchSettings
from loadtests.capacity.search_report import SaturationReport
from loadtests.capacity.server_side import saturated
from loadtests.errors import LoadError
from loadtests.load_objective import seconds_of
from loadtests.machine_guard import GuardLimits
from loadtests.result import quantile_of

if TYPE_CHECKING:
    from loadtests.capacity.guarded_runs import Bench, Record
    from loadtests.capacity.search_report import Ending
    from loadtests.load_objective import Slo
    from loadtests.result import Requests

_SEARCH, _BOOTSTRAP = 11, 12  # streams of random numbers of one seed
_START: Final = 0.6  # of the rate of one request at a time
_REFERENCE_INDEX: Final = 900_000
_RAMP_INDEX: Final = 910_000
_RAMP_REQUESTS: Final = 10  # that a run of the ramp has, if its length allows
_RAMP_SECONDS: Final = (1.0, 3.0)  # of a run of the ramp: shortest, longest
_RAMP_BUDGET: Final = (
    15.0  # seconds that the ramp may use in addition to the search's budget
)


class CampaignSettings(Settings):
    """Settings of a capacity search and of its further measurements."""

    search: SearchSettings = Field(default=SearchSettings())
    """Duration and resolution of the search."""
    guard: GuardLimits = Field(default=GuardLimits())
    """Limits of disturbances by other programs."""
    reference_seconds: float = Field(default=1.5, gt=0.1, le=600)
    """Time of the reference level: one request at a time, at the start."""


@dataclass(slots=True)
class Findings:
    """All results of a search."""

    ending: Ending
    estimate: Estimate | None
    unloaded_p50: float
    """Median latency of one request at a time."""
    saturation: SaturationReport
    repetitions: int
    spent_seconds: float
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def run(bench: Bench, settings: CampaignSettings) -> Findings:
    """Search, from the reference level to the boundary.

    Raises:
        LoadError: the server gives no correct answer, or none that the objective can judge.
    """
    began = time.monotonic()
    unloaded, reference = _reference(bench, settings)
    if evidence := out_of_reach(bench.slo, reference):
        return _hopeless(unloaded, evidence, began)
    bench.unloaded_p50 = unloaded
    start = ramped(bench, _START / unloaded, settings.search.most_rate)
    rng = np.random.default_rng((bench.scenario.seed, _SEARCH))
    search = Search(
        bench.measure,
        bench.slo.allowed,
        left_to_search(settings, time.monotonic() - began),
        rng,
        log=bench.log,
        stopped=bench.stopped,
        clock=time.monotonic,
    )
    bench.enter("search")
    ending = search.run(start)
    found = None
    if ending in {"precise", "budget"} and search.bracketed:
        search.rng = np.random.default_rng((bench.scenario.seed, _BOOTSTRAP))
        found = search.found(resamples=RESAMPLES)
    bench.settle()
    findings = _findings(bench, ending, found, settings.search.level_ratio)
    findings.spent_seconds = time.monotonic() - began
    if ending == "budget" and found is None:
        findings.reasons.append(_unfound(bench))
    findings.reasons += search.doubts(found) if found else []
    wanted = settings.search.repetitions
    if found is not None and findings.repetitions < wanted:
        findings.reasons.append(
            f"{findings.repetitions} runs near the boundary, fewer than the {wanted} "
            "wanted; increase --budget"
        )
    return findings


def left_to_search(settings: CampaignSettings, spent_seconds: float) -> SearchSettings:
    """Return the budget that is left after a start of this length.

    Time that the start took beyond its plan is subtracted, up to half the budget.
    """
    search = settings.search
    late = max(spent_seconds - settings.reference_seconds - _RAMP_BUDGET, 0.0)
    left = max(search.budget_seconds - late, search.budget_seconds / 2)
    return search.model_copy(update={"budget_seconds": left})


def _reference(bench: Bench, settings: CampaignSettings) -> tuple[float, Requests]:
    bench.enter("reference")
    result = bench.alone(settings.reference_seconds, _REFERENCE_INDEX)
    p50 = result.quantile(0.5)
    if p50 is None or not np.isfinite(p50):
        said = next(iter(result.errors), "no answer came in time")
        raise LoadError(
            f"with one request at a time, half of {len(result.requests)} were not "
            f"answered correctly: {said}"
        )
    if unmeasured := bench.slo.unmeasured(result.requests):
        raise LoadError(
            f"no rate can be judged by {unmeasured}, with one request at a time"
        )
    bench.log(f"one request at a time: p50 {p50 * 1e3:.3g} ms")
    return p50, result.requests


def out_of_reach(slo: Slo, alone: Requests) -> str:
    """Return why no rate can meet the objective; empty where one may.

    Requests `alone` were sent one at a time: a term that even the median of what it
    measures misses then is missed at every rate.
    """
    for term in slo.terms:
        missed = term.misses(alone).mean()
        if term.limit_seconds is None or missed <= max(term.allowed_ratio, 0.5):
            continue
        seconds = seconds_of(alone, term.measure).astype(np.float64)
        median = quantile_of(seconds[np.isfinite(seconds)], 0.5)
        return (
            f"the {term.measure} of one request at a time is {median * 1e3:.3g} ms "
            f"(median), longer than {term.text} allows"
        )
    return ""


def ramped(bench: Bench, rate: float, most_rate: float) -> float:
    """Double the rate in short runs while the server stays quiet; return the last such rate.

    A server of many requests at once takes far more than one request at a time shows, and
    the search climbs in small steps.
    """
    bench.enter("ramp")
    index = _RAMP_INDEX
    while 2.0 * rate <= most_rate and not bench.stopped():
        seconds = float(np.clip(_RAMP_REQUESTS / (2.0 * rate), *_RAMP_SECONDS))
        if not bench.quiet(2.0 * rate, seconds, index):
            break
        rate, index = 2.0 * rate, index + 1
    bench.log(f"the search begins at {rate:.4g} requests/s")
    return rate


def _hopeless(unloaded: float, evidence: str, began: float) -> Findings:
    """Return the report for an objective that is missed at one request at a time."""
    return Findings(
        ending="no_rate_holds",
        estimate=None,
        unloaded_p50=unloaded,
        saturation=SaturationReport(resource="unknown", evidence=evidence),
        repetitions=0,
        spent_seconds=time.monotonic() - began,
    )


def _findings(
    bench: Bench,
    ending: Ending,
    found: Estimate | None,
    level_ratio: float,
) -> Findings:
    near, where = _near_boundary(bench.records, found, level_ratio), "near the boundary"
    if ending == "no_rate_holds":  # the runs that show it
        lowest = min(record.observation.rate for record in bench.records)
        near = [r for r in bench.records if r.observation.rate == lowest]
        where = "at the lowest rate"
    findings = Findings(
        ending=ending,
        estimate=found,
        unloaded_p50=bench.unloaded_p50,
        saturation=_saturation(bench, found),
        repetitions=len(near),
        spent_seconds=0.0,
    )
    _judge(bench, near, where, findings)
    return findings


def _unfound(bench: Bench) -> str:
    """Return why the search ended without runs on both sides of the boundary."""
    if bench.records:
        return "the boundary was not reached before the budget was spent"
    reasons = sorted({reason for record in bench.rejected for reason in record.reasons})
    return f"no run counted: {reasons[0] if reasons else 'the budget was too small for one'}"


def _near_boundary(
    records: list[Record], found: Estimate | None, level_ratio: float
) -> list[Record]:
    """Return the runs within one step of the boundary, on either side."""
    if found is None or not np.isfinite(found.rate):
        return []
    low, high = found.rate / level_ratio, found.rate * level_ratio
    return [r for r in records if low <= r.observation.rate <= high]


def _saturation(bench: Bench, found: Estimate | None) -> SaturationReport:
    """Return the saturation at the lowest rate above the boundary, or the highest of all."""
    if not bench.records:
        return SaturationReport(resource="unknown", evidence="no run counted")
    boundary = np.inf if found is None else found.rate
    ordered = sorted(bench.records, key=lambda record: record.observation.rate)
    above = [r for r in ordered if r.observation.rate > boundary] or ordered[-1:]
    chosen = above[0]
    return saturated(
        chosen.phases,
        chosen.watch,
        instances=_instances(bench),
        cpus=len(os.sched_getaffinity(0)),
    )


def _instances(bench: Bench) -> int | None:
    """Return the number of instances of the model; None for several models, or where unknown."""
    counts = {entry.spec.name: entry.spec.instances for entry in bench.mix.entries}
    return max(counts.values()) or None if len(counts) == 1 else None


def _judge(bench: Bench, near: list[Record], where: str, findings: Findings) -> None:
    """Collect the reasons against the result, from the runs that it is based on."""
    disturbed = [record for record in near if record.reasons]
    if disturbed:
        first = min(reason for record in disturbed for reason in record.reasons)
        many = len(disturbed) > bench.limits.rejected_ratio * len(near)
        (findings.reasons if many else findings.warnings).append(
            f"{len(disturbed)} of {len(near)} runs {where} were disturbed: {first}"
        )
    restless = sum(not record.observation.settled for record in near)
    if restless > len(near) / 2:
        findings.warnings.append(
            f"{restless} of {len(near)} runs {where} did not settle; "
            "increase --run-seconds"
        )
