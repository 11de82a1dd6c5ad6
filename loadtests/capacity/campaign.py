"""A whole search: the server alone, its concurrency curve, the boundary, and the end."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import Field

from exporter.settings import Settings
from loadtests.capacity.estimate import RESAMPLES, Estimate
from loadtests.capacity.scalability import fitted, knee
from loadtests.capacity.search import Search, SearchSettings
from loadtests.capacity.search_report import KneeReport, SaturationReport, UslReport
from loadtests.capacity.server_side import saturated
from loadtests.errors import LoadError
from loadtests.machine_guard import GuardLimits, drifted

if TYPE_CHECKING:
    from loadtests.capacity.guarded_runs import Bench, Record
    from loadtests.capacity.search import Ending

_SEARCH, _BOOTSTRAP, _ORDER = 11, 12, 13  # streams of random numbers of one seed
_START: Final = 0.6  # of the closed loop's highest throughput
_REFERENCE_INDEX: Final = 900_000
_CLOSED_INDEX: Final = 910_000
_BESIDE_SECONDS: Final = 0.3  # of a closed loop: to connect, and for the last answers


class CampaignSettings(Settings):
    """Settings of a capacity search and of the measurements beside it."""

    search: SearchSettings = Field(default=SearchSettings())
    """Duration and resolution of the search."""
    guard: GuardLimits = Field(default=GuardLimits())
    """Limits of disturbances by other programs."""
    reference_seconds: float = Field(default=1.5, gt=0.1, le=600)
    """Time of the reference level, one request at a time, at start and end."""
    concurrencies: tuple[int, ...] = Field(default=(1, 2, 4, 8, 16, 32))
    """Concurrency of the closed loops that the Universal Scalability Law is fitted to."""
    concurrency_seconds: float = Field(default=0.6, gt=0.05, le=600)
    """Time of each."""
    concurrency_repetitions: int = Field(default=3, ge=1, le=100)
    """Repetitions of each level, in random order."""


@dataclass(slots=True)
class Findings:
    """All results of a search."""

    ending: Ending
    estimate: Estimate | None
    unloaded: tuple[float | None, float | None]
    """Median latency of one request at a time, at the start and at the end."""
    closed: list[tuple[int, float, float | None]]
    """(concurrency, throughput, p50) of each closed loop."""
    usl: UslReport | None
    knee: KneeReport | None
    saturation: SaturationReport
    repetitions: int
    spent_seconds: float
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def run(bench: Bench, settings: CampaignSettings) -> Findings:
    """Search, from the first reference level to the last.

    Raises:
        LoadError: the server answers nothing rightly, so that there is nothing to
            search for.
    """
    began = time.monotonic()
    first = _reference(bench, settings, 0)
    limit = bench.slo.limit_seconds
    if limit is not None and first > limit:
        return _hopeless(bench, first, began)
    bench.unloaded_p50 = first
    closed = _closed(bench, settings)
    rng = np.random.default_rng((bench.seed, _SEARCH))
    search = Search(
        bench.measure,
        bench.slo.allowed,
        left_to_search(settings, time.monotonic() - began),
        rng,
        tell=bench.tell,
        stopped=bench.stopped,
        clock=time.monotonic,
    )
    bench.enter("search")
    ending = search.run(_START * max(x for _, x, _ in closed))
    found = None
    if ending in {"precise", "budget"} and search.bracketed:
        search.rng = np.random.default_rng((bench.seed, _BOOTSTRAP))
        found = search.found(resamples=RESAMPLES)
    bench.settle()
    last = None if bench.stopped() else _reference(bench, settings, 1)
    findings = _findings(
        bench, ending, found, (first, last), closed, settings.search.level_ratio
    )
    findings.spent_seconds = time.monotonic() - began
    if ending == "budget" and found is None:
        findings.reasons.append(_unfound(bench))
    findings.reasons += search.doubts(found) if found else []
    wanted = settings.search.repetitions
    if found is not None and findings.repetitions < wanted:
        findings.reasons.append(
            f"{findings.repetitions} runs beside the boundary, fewer than the {wanted} "
            "wanted; give --budget more"
        )
    if last is not None:
        drift = drifted(first, last, settings.guard)
        findings.warnings += [drift] if drift else []
    return findings


def left_to_search(settings: CampaignSettings, spent_seconds: float) -> SearchSettings:
    """Return the budget that a start of this length leaves.

    Up to half the budget goes for what the time before took more than it was to take.
    """
    search = settings.search
    loops = len(settings.concurrencies) * settings.concurrency_repetitions
    planned = settings.reference_seconds + loops * (
        settings.concurrency_seconds + _BESIDE_SECONDS
    )
    late = max(spent_seconds - planned, 0.0)
    left = max(search.budget_seconds - late, search.budget_seconds / 2)
    return search.model_copy(update={"budget_seconds": left})


def _reference(bench: Bench, settings: CampaignSettings, turn: int) -> float:
    bench.enter("reference")
    result = bench.closed(1, settings.reference_seconds, _REFERENCE_INDEX + turn)
    p50 = result.quantile(0.5)
    if p50 is None or not np.isfinite(p50):
        said = next(iter(result.errors), "no answer came in time")
        raise LoadError(
            f"one request at a time, half of {len(result.requests)} were not answered "
            f"rightly: {said}"
        )
    bench.tell(f"one request at a time: p50 {p50 * 1e3:.3g} ms")
    return p50


def _closed(
    bench: Bench, settings: CampaignSettings
) -> list[tuple[int, float, float | None]]:
    bench.enter("closed loops")
    rng = np.random.default_rng((bench.seed, _ORDER))
    plan = rng.permutation(
        np.repeat(settings.concurrencies, settings.concurrency_repetitions)
    )
    found = []
    for index, concurrency in enumerate(plan.tolist()):
        if bench.stopped():
            break
        result = bench.closed(
            concurrency, settings.concurrency_seconds, _CLOSED_INDEX + index
        )
        p50 = result.quantile(0.5)
        finite = p50 if p50 is not None and np.isfinite(p50) else None
        found.append((concurrency, result.throughput, finite))
    best = max((x for _, x, _ in found), default=0.0)
    bench.tell(f"closed loops: at most {best:.4g} requests/s")
    return found or [(1, 1.0, None)]


def _hopeless(bench: Bench, unloaded: float, began: float) -> Findings:
    """Return the report for an objective that is missed at one request at a time."""
    return Findings(
        ending="no_rate_holds",
        estimate=None,
        unloaded=(unloaded, None),
        closed=[],
        usl=None,
        knee=None,
        saturation=SaturationReport(
            resource="unknown",
            evidence=f"one request at a time takes {unloaded * 1e3:.3g} ms (median), longer than "
            f"{bench.slo.text} allows",
        ),
        repetitions=0,
        spent_seconds=time.monotonic() - began,
    )


def _findings(
    bench: Bench,
    ending: Ending,
    found: Estimate | None,
    unloaded: tuple[float | None, float | None],
    closed: list[tuple[int, float, float | None]],
    level_ratio: float,
) -> Findings:
    n = np.array([c for c, x, _ in closed if x > 0], np.float64)
    x = np.array([x for _, x, _ in closed if x > 0], np.float64)
    law = fitted(n, x, np.random.default_rng((bench.seed, _BOOTSTRAP)))
    beside = _beside(bench.records, found, level_ratio)
    findings = Findings(
        ending=ending,
        estimate=found,
        unloaded=unloaded,
        closed=closed,
        usl=law,
        knee=knee(n, x, law) if n.size else None,
        saturation=_saturation(bench, found),
        repetitions=len(beside),
        spent_seconds=0.0,
    )
    _judge(bench, beside, findings)
    return findings


def _unfound(bench: Bench) -> str:
    """Return why the search ended without runs on both sides of the boundary."""
    if bench.records:
        return "the boundary was not reached before the budget was spent"
    told = sorted({reason for record in bench.rejected for reason in record.reasons})
    return f"no run counted: {told[0] if told else 'the budget was too small for one'}"


def _beside(
    records: list[Record], found: Estimate | None, level_ratio: float
) -> list[Record]:
    """The runs within one step of the boundary, on either side."""
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
        instances=bench.server.instances(),
        cpus=len(os.sched_getaffinity(0)),
    )


def _judge(bench: Bench, beside: list[Record], findings: Findings) -> None:
    """Collect the reasons against the result, from the runs that it is based on."""
    disturbed = [record for record in beside if record.reasons]
    told = sorted({reason for record in disturbed for reason in record.reasons})
    if len(disturbed) > bench.limits.rejected_ratio * max(len(beside), 1):
        findings.reasons.append(
            f"{len(disturbed)} of {len(beside)} runs beside the boundary were disturbed: "
            f"{told[0]}"
        )
    elif told:
        findings.warnings.append(
            f"{len(disturbed)} of {len(beside)} runs beside the boundary were disturbed: "
            f"{told[0]}"
        )
    restless = sum(not record.observation.settled for record in beside)
    if restless > len(beside) / 2:
        findings.warnings.append(
            f"{restless} of {len(beside)} runs beside the boundary did not settle; give "
            "--run-seconds more"
        )
