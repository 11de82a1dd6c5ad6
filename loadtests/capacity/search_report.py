"""A capacity search as data: the JSON report, whose schema is published, and its assembly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from pydantic import Field

from exporter.settings import Settings
from loadtests import surroundings
from loadtests.errors import EXIT_FINDING, EXIT_INVALID, EXIT_OK
from loadtests.result import UnixTime, finite, quantile_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loadtests.capacity.campaign import CampaignSettings, Findings
    from loadtests.capacity.estimate import Estimate
    from loadtests.capacity.guarded_runs import Bench, Record
    from loadtests.load_objective import Slo

FORMAT: Final = "tritonwatch-load-capacity"
Ending = Literal["precise", "budget", "no_rate_holds", "every_rate_holds", "stopped"]


class Bounds(Settings):
    """An estimate and its 95 % interval; an end is null where it is open."""

    estimate: float
    low: float | None
    high: float | None


class Capacity(Settings):
    """The highest rate that holds the objective."""

    requests_per_second: Bounds
    by_term: dict[str, float | None]
    """The rate at which each term alone is reached; null where it never was."""
    dispersion: float | None
    """Variance of a block's misses over that of independent requests."""
    blocks: int
    """Blocks near the boundary, of which the interval is made."""
    effective_requests: float | None = None
    """Independent requests near the boundary that would give as wide an interval."""
    method: str = "isotonic fit, residual block bootstrap"
    """Method of the estimate."""


class Quantiles(Settings):
    """Latency from the intended send in seconds; null where misses leave it open."""

    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    p999: float | None


class PhaseSeconds(Settings):
    """Mean seconds of a request in the server."""

    queue: float
    compute_input: float
    compute_infer: float
    compute_output: float


class Level(Settings):
    """All runs at one rate."""

    requests_per_second: float
    """Offered."""
    runs: int
    requests: int
    """Number of requests after the warm-up."""
    throughput: float
    """Correct answers per second."""
    throughput_deviation: float | None
    """Standard deviation between the runs; null for one run."""
    shares: dict[str, float]
    """Share of requests that missed each term."""
    share_deviations: dict[str, float | None]
    """Standard deviation of it between the runs."""
    latency: Quantiles
    """Latency over all requests; one without a correct answer is infinitely late."""
    p99_deviation: float | None
    """Standard deviation of p99 between the runs."""
    phases: PhaseSeconds | None
    """Phases from Triton's statistics."""
    mean_batch: float | None
    busy: float | None
    """Executions under way on average."""
    server_cpu: float | None
    """Processors the server used, where it runs on the sender's machine."""
    sender_cpu: float | None
    """Processors the sender used."""
    warmup_seconds: float
    """Longest that was left out at the start of a run."""
    settled: bool
    """True if every run settled."""
    runs_with_reasons: int
    """Runs that were disturbed and counted nevertheless."""


class Reference(Settings):
    """One request at a time, before everything else."""

    start_p50: float | None


class SaturationReport(Settings):
    """The saturated resource at the boundary."""

    resource: str
    evidence: str


class CapacityReport(Settings):
    """Result of `tritonwatch load capacity`."""

    format: Literal["tritonwatch-load-capacity"] = "tritonwatch-load-capacity"
    version: Literal[1] = 1
    model: str
    """The models of the mix, joined by commas."""
    slo: str
    conclusion: str
    """The result in a sentence."""
    ending: Ending
    capacity: Capacity | None
    """Null where no rate holds, or the boundary was not reached."""
    valid: bool
    reasons: tuple[str, ...] = Field(default=())
    """Reasons against the numbers."""
    warnings: tuple[str, ...] = Field(default=())
    reference: Reference
    levels: tuple[Level, ...]
    saturation: SaturationReport
    repetitions: int
    """Runs within one level (6 %) of the boundary, on either side. If no rate holds, runs
    at the lowest rate, or 0 if one request at a time misses the objective. 0 if every rate holds."""
    rejected_runs: int
    """Runs that were disturbed, and made again."""
    spent_seconds: float
    started_at: UnixTime
    """Unix time."""
    seed: int
    protocol: str
    address: str
    payload_sha256: str
    schedule_sha256: str
    """SHA-256 of the arrival times of all runs, in order."""
    settings: dict[str, Any]
    hardware: dict[str, Any]
    versions: dict[str, str]


def compiled(
    bench: Bench, settings: CampaignSettings, found: Findings, *, started_at: float
) -> CapacityReport:
    """Return the report of a search."""
    capacity = _capacity(found.estimate, bench.slo)
    return CapacityReport(
        model=",".join(sorted({entry.spec.name for entry in bench.mix.entries})),
        slo=bench.slo.text,
        conclusion=_conclusion(bench, found, capacity),
        ending=found.ending,
        capacity=capacity,
        valid=not found.reasons,
        reasons=tuple(found.reasons),
        warnings=tuple(found.warnings),
        reference=Reference(start_p50=found.unloaded_p50),
        levels=tuple(_levels(bench.records, bench.slo)),
        saturation=found.saturation,
        repetitions=found.repetitions,
        rejected_runs=len(bench.rejected),
        spent_seconds=found.spent_seconds,
        started_at=started_at,
        seed=bench.scenario.seed,
        protocol=bench.target.protocol,
        address=bench.target.address,
        payload_sha256=bench.mix.sha256,
        schedule_sha256=bench.schedule_sha256,
        settings=settings.model_dump(mode="json"),
        hardware=surroundings.hardware(),
        versions=surroundings.versions(),
    )


def _bounds(found: Estimate) -> Bounds:
    """Return the estimate with its bounds; an open bound is None."""
    return Bounds(
        estimate=found.rate,
        low=found.low or None,
        high=finite(found.high),
    )


def _capacity(found: Estimate | None, slo: Slo) -> Capacity | None:
    if found is None or not 0 < found.rate < math.inf:
        return None
    return Capacity(
        requests_per_second=_bounds(found),
        by_term={
            term.text: finite(rate) if rate else None
            for term, rate in zip(slo.terms, found.by_term, strict=True)
        },
        dispersion=found.dispersion,
        blocks=found.blocks,
        effective_requests=found.effective_requests,
    )


def _conclusion(bench: Bench, found: Findings, capacity: Capacity | None) -> str:
    slo = bench.slo.text
    if capacity is not None:
        ends = capacity.requests_per_second
        if None in {ends.low, ends.high}:
            return (
                f"not enough data: {slo} seems to hold up to {ends.estimate:.4g} "
                "requests/s, with too few runs for an interval"
            )
        return (
            f"meets {slo} up to {ends.estimate:.4g} requests/s, 95 % interval "
            f"{ends.low:.4g} to {ends.high:.4g}"
        )
    highest = max((r.observation.rate for r in bench.records), default=0.0)
    lowest = min((r.observation.rate for r in bench.records), default=0.0)
    match found.ending:
        case "no_rate_holds":
            tried = f"{lowest:.4g} requests/s" if lowest else "one request at a time"
            why = "" if lowest else f": {found.saturation.evidence}"
            return f"no rate meets {slo}; it is missed even at {tried}{why}"
        case "every_rate_holds":
            return (
                f"meets {slo} at every rate tried, up to {highest:.4g} requests/s; "
                "the capacity is higher than the offered load"
            )
        case "stopped":
            return "stopped before the boundary was known"
        case _:
            tried = (
                f"{lowest:.4g} to {highest:.4g}"
                if lowest < highest
                else f"{lowest:.4g}"
            )
            seen = (
                f"the highest rate that meets {slo} is unknown after runs at "
                f"{tried} requests/s; raise --budget"
                if bench.records
                else f"no run counted, so nothing is known of {slo}"
            )
            return f"not enough data: {seen}"


def _levels(records: Sequence[Record], slo: Slo) -> Iterable[Level]:
    for rate in sorted({record.observation.rate for record in records}):
        yield _level([r for r in records if r.observation.rate == rate], slo)


def _level(runs: Sequence[Record], slo: Slo) -> Level:
    counts = np.array([run.observation.requests for run in runs], np.float64)
    shares = np.array([run.observation.shares for run in runs])
    pooled = (shares * counts[:, None]).sum(axis=0) / counts.sum()
    latencies = np.concatenate([run.latencies for run in runs])
    tails = np.array([quantile_of(run.latencies, 0.99) for run in runs])
    phases = [run.phases for run in runs if run.phases is not None]
    names = [term.text for term in slo.terms]
    return Level(
        requests_per_second=runs[0].observation.rate,
        runs=len(runs),
        requests=int(counts.sum()),
        throughput=float(np.mean([run.throughput for run in runs])),
        throughput_deviation=_deviation([run.throughput for run in runs]),
        shares=dict(zip(names, pooled.tolist(), strict=True)),
        share_deviations={
            name: _deviation(column)
            for name, column in zip(names, shares.T.tolist(), strict=True)
        },
        latency=Quantiles(
            **{
                name: finite(quantile_of(latencies, float(f"0.{name[1:]}")))
                for name in Quantiles.model_fields
            }
        ),
        p99_deviation=_deviation(tails.tolist()) if np.isfinite(tails).all() else None,
        phases=PhaseSeconds(
            queue=float(np.mean([p.queue_seconds for p in phases])),
            compute_input=float(np.mean([p.compute_input_seconds for p in phases])),
            compute_infer=float(np.mean([p.compute_infer_seconds for p in phases])),
            compute_output=float(np.mean([p.compute_output_seconds for p in phases])),
        )
        if phases
        else None,
        mean_batch=_mean(p.mean_batch for p in phases if p.mean_batch is not None),
        busy=_mean(p.busy for p in phases),
        server_cpu=_mean(
            cpu for run in runs if (cpu := run.watch.mean("server_cpu")) is not None
        ),
        sender_cpu=_mean(
            cpu for run in runs if (cpu := run.watch.mean("sender_cpu")) is not None
        ),
        warmup_seconds=max(run.observation.warmup_seconds for run in runs),
        settled=all(run.observation.settled for run in runs),
        runs_with_reasons=sum(bool(run.reasons) for run in runs),
    )


def _deviation(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return float(np.mean(known)) if known else None


def exit_of(report: CapacityReport) -> int:
    """Return the exit status of a report."""
    if not report.valid:
        return EXIT_INVALID
    if report.ending in {"no_rate_holds", "every_rate_holds"}:
        return EXIT_FINDING
    if report.capacity is None:
        return EXIT_INVALID
    ends = report.capacity.requests_per_second
    return EXIT_INVALID if None in {ends.low, ends.high} else EXIT_OK
