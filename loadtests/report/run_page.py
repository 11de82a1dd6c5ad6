"""The page of one run."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.report import page
from loadtests.report.svg import Axis, Mark, Plot, Series

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.report.run_report import RunReport, Slice

_QUANTILE_TICKS: Final = tuple(
    (1.0 / (1.0 - q), f"{100 * q:.6g} %")
    for q in (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
)
_MOST_PHASE_MARKS: Final = 12
_MS: Final = 1e3


def render(report: RunReport) -> str:
    """The whole file."""
    models = ", ".join(report.models)
    return page.page(f"Load run: {models}", _parts(report, models))


def _parts(report: RunReport, models: str) -> Iterator[str]:
    started = datetime.fromtimestamp(report.started_at, UTC)
    kind = report.profile.get("kind", report.mode)
    yield f"<header><h1>Load run of {escape(models)}</h1>"
    yield (
        f'<p class="soft">{escape(str(kind))} over {escape(report.protocol)} at '
        f"{escape(report.address)} · {started:%Y-%m-%d %H:%M:%S} UTC · "
        f"{report.duration_seconds:.4g} s · seed {report.seed}</p>"
    )
    yield _verdict(report)
    for warning in report.warnings:
        yield f'<p class="soft">Note: {escape(warning)}</p>'
    yield "</header><main>"
    yield page.tiles(_tiles(report))
    yield from _plots(report)
    yield from _tables(report)
    yield from _sidecar(report)
    yield from _origin(report)
    yield "</main>"


def _verdict(report: RunReport) -> str:
    if report.valid:
        return page.verdict("good", "VALID: nothing speaks against these numbers")
    return page.verdict("bad", f"INVALID: {'; '.join(report.reasons)}")


def _tiles(report: RunReport) -> dict[str, str]:
    offered = (
        {"offered a second": page.number(report.intended_rate)}
        if report.mode == "open"
        else {}
    )
    return {
        **offered,
        "right answers a second": page.number(report.throughput),
        "median latency": page.time(report.latency.p50.value),
        "p99 latency": page.time(report.latency.p99.value),
        "missed": page.share(report.miss_ratio),
    }


def _plots(report: RunReport) -> Iterator[str]:
    slices = report.slices
    if not slices:
        return
    times = np.array([s.start_seconds for s in slices])
    marks = _phase_marks(report)
    seconds = Axis("seconds from the start of the run", low=0.0)
    yield "<h2>Over time</h2>"
    yield page.figure(
        Plot(
            "Latency from the intended send",
            seconds,
            Axis("milliseconds", log=True),
            (
                Series("median", times, _column(slices, "p50")),
                Series("p95", times, _column(slices, "p95")),
                Series("p99", times, _column(slices, "p99")),
                Series("slowest", times, _column(slices, "max"), "points"),
            ),
            marks,
        )
    )
    offered = np.array([s.offered_per_second for s in slices])
    answered = np.array([s.answered_per_second for s in slices])
    yield page.figure(
        Plot(
            "Requests",
            seconds,
            Axis("a second", low=0.0),
            (
                Series("offered", times, offered, "area"),
                Series("answered rightly", times, answered, colour=2),
            ),
            marks,
        )
    )
    if any(s.missed for s in slices):
        missed = np.array([float(s.missed) for s in slices])
        plot = Plot(
            "Missed: errors, wrong answers, timeouts, rejected",
            seconds,
            Axis("requests", low=0.0),
            (Series("missed", times, missed, "area", colour=1),),
        )
        yield page.figure(plot)
    yield from _distribution(report)


def _distribution(report: RunReport) -> Iterator[str]:
    if len(report.curve) < 2:  # noqa: PLR2004 - no line through one point
        return
    x = np.array([1.0 / (1.0 - p.quantile) for p in report.curve])
    sent = np.array(
        [math.nan if p.from_send is None else p.from_send for p in report.curve]
    )
    yield "<h2>Distribution</h2>"
    yield page.figure(
        Plot(
            "Latency by percentile",
            Axis("share of requests at most so late", log=True, ticks=_QUANTILE_TICKS),
            Axis("milliseconds", log=True),
            (
                Series(
                    "from the intended send",
                    x,
                    np.array([p.from_intended for p in report.curve]) * _MS,
                ),
                Series("from the send", x, sent * _MS),
            ),
        )
    )


def _phase_marks(report: RunReport) -> tuple[Mark, ...]:
    if not 1 < len(report.parts) <= _MOST_PHASE_MARKS:
        return ()
    return tuple(Mark(part.name, x=part.start_seconds) for part in report.parts)


def _column(slices: tuple[Slice, ...], name: str) -> np.ndarray:
    values = [getattr(s, name) for s in slices]
    return np.array([math.nan if v is None else v * _MS for v in values])


def _tables(report: RunReport) -> Iterator[str]:
    names = ("p50", "p90", "p95", "p99", "p999")
    kinds = {
        "from the intended send": report.latency,
        "from the send": report.from_send,
        "sender late by": report.dispatch_delay,
        "to the first response": report.first_response,
        "between responses": report.between_responses,
    }
    yield page.table(
        ("latency", *names[:-1], "p99.9", "max"),
        (
            (
                kind,
                *(page.time(getattr(latency, name).value) for name in names),
                page.time(latency.max),
            )
            for kind, latency in kinds.items()
            if latency is not None and latency.count
        ),
    )
    ends = report.latency.p99
    if ends.low is not None and ends.high is not None:
        yield (
            f'<p class="soft">95 % interval of p99: {page.time(ends.low)} to '
            f"{page.time(ends.high)}, if requests were independent; near saturation it "
            "is wider.</p>"
        )
    if report.parts:
        yield "<h2>Phases of the profile</h2>"
        yield page.table(
            ("phase", "from", "to", "offered/s", "requests", "p50", "p99", "missed"),
            (
                (
                    part.name,
                    f"{part.start_seconds:.4g} s",
                    f"{part.end_seconds:.4g} s",
                    page.number(part.offered_per_second),
                    str(part.requests),
                    page.time(part.p50),
                    page.time(part.p99),
                    page.share(part.miss_ratio),
                )
                for part in report.parts
            ),
        )
    if report.trend is not None and report.profile.get("kind") == "soak":
        trend = report.trend
        yield (
            f"<p>The median {'rises' if trend.rises else 'does not rise for sure'}: "
            f"{page.time(trend.seconds_per_hour)} an hour, 95 % interval "
            f"{page.time(trend.low)} to {page.time(trend.high)}.</p>"
        )
    if report.mlperf is not None:
        yield "<h2>MLPerf</h2>"
        yield page.facts(report.mlperf.model_dump())
    if report.errors:
        yield "<h2>What was said</h2>"
        yield page.table(
            ("message", "times"),
            ((said, str(count)) for said, count in report.errors.items()),
        )


def _sidecar(report: RunReport) -> Iterator[str]:
    seen = report.sidecar
    if seen is None:
        return
    if seen.phase_seconds:
        yield "<h2>Where the time went in the server</h2>"
        yield page.table(
            ("phase", "mean"),
            ((name, page.time(value)) for name, value in seen.phase_seconds.items()),
        )
    if seen.energy_joules:
        right = report.outcomes.get("ok", 0)
        yield "<h2>Energy</h2>"
        yield page.table(
            ("of", "joules", "joules a right answer"),
            (
                (
                    name,
                    page.number(value),
                    page.number(value / right if right else None),
                )
                for name, value in seen.energy_joules.items()
            ),
        )


def _origin(report: RunReport) -> Iterator[str]:
    yield "<details><summary>How to get it again</summary>"
    yield page.facts(
        {
            "profile": report.profile,
            "seed": report.seed,
            "SHA-256 of the payloads": report.payload_sha256,
            "senders": report.workers,
            "processor time of the sender": page.time(report.sender_cpu_seconds),
            "outcomes": report.outcomes,
            "hardware of the sender": report.hardware,
            "versions": report.versions,
        }
    )
    yield "</details>"
