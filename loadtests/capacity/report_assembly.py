"""Assembles the published report of a search."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from loadtests import surroundings
from loadtests.capacity.search_report import (
    Bounds,
    Capacity,
    CapacityReport,
    Headroom,
    Level,
    PhaseSeconds,
    Quantiles,
    Reference,
)
from loadtests.result import finite, quantile_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loadtests.capacity.campaign import CampaignSettings, Findings
    from loadtests.capacity.estimate import Estimate
    from loadtests.capacity.guarded_runs import Bench, Record
    from loadtests.load_objective import Slo


def compiled(
    bench: Bench,
    settings: CampaignSettings,
    found: Findings,
    *,
    started_at: float,
    production_rate: float | None = None,
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
        headroom=None if found.reasons else _headroom(capacity, production_rate),
        repetitions=found.repetitions,
        rejected_runs=len(bench.rejected),
        spent_seconds=found.spent_seconds,
        started_at=started_at,
        seed=bench.seed,
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
        low=found.low if found.low > 0 else None,
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
        if ends.low is None or ends.high is None:
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
            seen = (
                f"between {lowest:.4g} and {highest:.4g} requests/s the boundary of {slo} "
                "was not pinned down; give --budget more"
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
            p50=finite(quantile_of(latencies, 0.5)),
            p90=finite(quantile_of(latencies, 0.9)),
            p95=finite(quantile_of(latencies, 0.95)),
            p99=finite(quantile_of(latencies, 0.99)),
            p999=finite(quantile_of(latencies, 0.999)),
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


def _headroom(capacity: Capacity | None, production: float | None) -> Headroom | None:
    if capacity is None or production is None:
        return None
    ratio = 1.0 - production / capacity.requests_per_second.estimate
    return Headroom(production_requests_per_second=production, ratio=ratio)


def _deviation(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return float(np.mean(known)) if known else None
