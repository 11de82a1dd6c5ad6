"""A capacity report for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.capacity.report_model import Bounds, CapacityReport


def render(report: CapacityReport) -> str:
    """The page."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: CapacityReport) -> Iterator[str]:
    yield f"{report.model} over {report.protocol} at {report.address}"
    yield f"  {report.conclusion}"
    verdict = "VALID" if report.valid else f"INVALID: {'; '.join(report.reasons)}"
    yield f"  {verdict}"
    for warning in report.warnings:
        yield f"  note: {warning}"
    if report.levels:
        yield ""
        yield from _levels(report)
    yield ""
    yield from _findings(report)
    yield (
        f"  {report.spent_seconds:.0f} s, {sum(level.runs for level in report.levels)} "
        f"runs, {report.repetitions} beside the boundary, {report.rejected_runs} "
        f"rejected, seed {report.seed}"
    )


def _levels(report: CapacityReport) -> Iterator[str]:
    terms = list(report.levels[0].shares)
    heads = [f"miss {term}" for term in terms]
    yield "  offered/s  runs     p50 ms     p99 ms  " + "  ".join(heads) + "  queue"
    for level in report.levels:
        shares = "  ".join(
            f"{level.shares[term]:>{len(head)}.2%}"
            for term, head in zip(terms, heads, strict=True)
        )
        queue = "?"
        if level.phases is not None:
            phases = level.phases
            whole = sum(phases.model_dump().values())
            queue = f"{phases.queue / whole:.0%}" if whole else "?"
        yield (
            f"  {level.requests_per_second:9.4g}  {level.runs:4d} "
            f"{_ms(level.latency.p50):>10} {_ms(level.latency.p99):>10}  {shares}"
            f"  {queue:>5}"
        )


def _findings(report: CapacityReport) -> Iterator[str]:
    if report.capacity is not None and report.capacity.dispersion is not None:
        yield (
            f"  misses vary {report.capacity.dispersion:.3g} times as much as "
            "independent ones would"
        )
    yield f"  saturates: {report.saturation.resource}; {report.saturation.evidence}"
    if report.usl is not None:
        usl = report.usl
        yield (
            f"  USL: contention {_ends(usl.contention)}, coherency "
            f"{_ends(usl.coherency)}, R2 {usl.r_squared:.3f}"
        )
        if usl.peak_concurrency is not None and usl.peak_throughput is not None:
            yield (
                f"  peak at concurrency {_ends(usl.peak_concurrency)}: "
                f"{_ends(usl.peak_throughput)} requests/s"
            )
        elif usl.refused:
            yield f"  {usl.refused}"
    if report.knee is not None:
        yield (
            f"  knee at concurrency {_known(report.knee.kneedle)} (Kneedle), "
            f"{_known(report.knee.law)} (USL)"
            + (": they disagree" if report.knee.agree is False else "")
        )
    if report.mlperf is not None:
        told = "holds" if report.mlperf.early_stopping_met else "does not hold"
        yield f"  MLPerf early stopping {told} below the boundary (iid: claims too much)"
    for entry in report.instances:
        found = entry.requests_per_second
        shown = "no rate" if found is None else f"{_ends(found)} requests/s"
        yield f"  {entry.instances} instances: {shown}"
    if report.headroom is not None:
        yield (
            f"  headroom {report.headroom.ratio:.0%} at production's "
            f"{report.headroom.production_requests_per_second:.4g} requests/s"
        )


def _ends(found: Bounds) -> str:
    low = "?" if found.low is None else f"{found.low:.3g}"
    high = "?" if found.high is None else f"{found.high:.3g}"
    return f"{found.estimate:.3g} [{low}, {high}]"


def _known(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"


def _ms(seconds: float | None) -> str:
    return "late" if seconds is None else f"{seconds * 1e3:.4g}"
