"""A run's report for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtests.report import page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.report.run_report import RunReport


def render(report: RunReport) -> str:
    """The lines."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: RunReport) -> Iterator[str]:
    kind = report.profile.get("kind", report.mode)
    yield f"{', '.join(report.models)}: {kind} over {report.protocol} at {report.address}"
    said = "VALID" if report.valid else f"INVALID: {'; '.join(report.reasons)}"
    yield f"  {said}"
    yield (
        f"  {report.throughput:.5g} right answers/s in {report.duration_seconds:.4g} s; "
        f"{page.share(report.miss_ratio)} of {report.requests} requests missed"
    )
    for name, latency in (
        ("latency", report.latency),
        ("from send", report.from_send),
        ("sender late by", report.dispatch_delay),
    ):
        if latency.count:
            yield (
                f"  {name:<14} p50 {page.time(latency.p50.value)}  "
                f"p99 {page.time(latency.p99.value)}  "
                f"p99.9 {page.time(latency.p999.value)}  max {page.time(latency.max)}"
            )
    for part in report.parts:
        yield (
            f"  {part.name:<14} {part.offered_per_second:8.4g}/s  "
            f"p50 {page.time(part.p50)}  p99 {page.time(part.p99)}  "
            f"missed {page.share(part.miss_ratio)}"
        )
    if report.mlperf is not None:
        found = report.mlperf
        yield (
            f"  MLPerf {found.scenario}: {'VALID' if found.valid else 'INVALID'}, "
            f"{found.result:.5g} {found.unit}; {found.caveat}"
        )
    for warning in report.warnings:
        yield f"  note: {warning}"
