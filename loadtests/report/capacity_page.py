"""The page of a capacity search."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.capacity.usl import law
from loadtests.report import page
from loadtests.report.svg import Axis, Mark, Plot, Series

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.capacity.report_model import Bounds, CapacityReport, UslReport

_MS: Final = 1e3
_LEAST_SHARE: Final = 1e-5
_FINE: Final = 80


def render(report: CapacityReport) -> str:
    """The whole file."""
    return page.page(f"Capacity of {report.model}", _parts(report))


def _parts(report: CapacityReport) -> Iterator[str]:
    started = datetime.fromtimestamp(report.started_at, UTC)
    yield f"<header><h1>Capacity of {escape(report.model)}</h1>"
    yield (
        f'<p class="soft">{escape(report.slo)} over {escape(report.protocol)} at '
        f"{escape(report.address)} · {started:%Y-%m-%d %H:%M:%S} UTC · "
        f"{report.spent_seconds:.0f} s · seed {report.seed}</p>"
    )
    yield page.verdict(_tone(report), _sentence(report))
    for warning in report.warnings:
        yield f'<p class="soft">Note: {escape(warning)}</p>'
    yield "</header><main>"
    yield page.tiles(_tiles(report))
    yield from _boundary(report)
    yield from _levels(report)
    yield from _concurrency(report)
    yield from _instances(report)
    yield from _origin(report)
    yield "</main>"


def _tone(report: CapacityReport) -> str:
    if not report.valid:
        return "bad"
    found = report.capacity
    if found is None:
        return "note"
    ends = found.requests_per_second
    return "note" if ends.low is None or ends.high is None else "good"


def _sentence(report: CapacityReport) -> str:
    said = f"{_capital(report.conclusion)}."
    return said if report.valid else f"INVALID: {'; '.join(report.reasons)}. {said}"


def _tiles(report: CapacityReport) -> dict[str, str]:
    found = report.capacity
    tiles = {}
    if found is not None:
        ends = found.requests_per_second
        tiles["requests a second"] = page.number(ends.estimate)
        tiles["95 % interval"] = f"{_end(ends.low)} to {_end(ends.high)}"
    tiles["saturates"] = report.saturation.resource
    tiles["one request alone"] = page.time(report.reference.start_p50)
    if report.headroom is not None:
        tiles["headroom"] = f"{report.headroom.ratio:.0%}"
    return tiles


def _boundary(report: CapacityReport) -> Iterator[str]:
    levels = report.levels
    if len(levels) < 2:  # noqa: PLR2004 - no line through one point
        return
    rates = np.array([level.requests_per_second for level in levels])
    axis = Axis("requests a second offered")
    found = report.capacity
    at = (
        ()
        if found is None
        else (Mark("capacity", x=found.requests_per_second.estimate),)
    )
    yield "<h2>The boundary</h2>"
    series = [_interval(report)] if found is not None else []
    for place, term in enumerate(levels[0].shares):
        shares = np.array([level.shares[term] for level in levels])
        series.append(Series(f"miss {term}", rates, shares, colour=place))
        series.append(Series("", rates, shares, "points", colour=place))
    allowed = tuple(
        Mark(f"{term} allows {share:.3g}", y=share)
        for term, share in _allowed(report).items()
    )
    yield page.figure(
        Plot(
            "Share of requests that miss the objective",
            axis,
            Axis("share (bottom: none)", log=True, low=_LEAST_SHARE, high=1.0),
            tuple(s for s in series if s is not None),
            (*at, *allowed),
        )
    )
    yield page.figure(
        Plot(
            "Latency over offered rate",
            axis,
            Axis("milliseconds", log=True),
            tuple(
                Series(
                    name,
                    rates,
                    np.array(
                        [_or_nan(getattr(level.latency, name)) for level in levels]
                    )
                    * _MS,
                )
                for name in ("p50", "p95", "p99")
            ),
            at,
        )
    )
    yield f"<p>{escape(_capital(report.saturation.evidence))}.</p>"


def _interval(report: CapacityReport) -> Series | None:
    assert report.capacity is not None  # noqa: S101 - the caller looked
    ends = report.capacity.requests_per_second
    if ends.low is None or ends.high is None:
        return None
    x = np.array([ends.low, ends.high])
    low, high = np.full(2, _LEAST_SHARE), np.ones(2)
    return Series("95 % interval", x, low, "band", upper=high, colour=2)


def _allowed(report: CapacityReport) -> dict[str, float]:
    from loadtests.capacity.slo import parse  # noqa: PLC0415

    return {term.text: term.allowed_ratio for term in parse(report.slo).terms}


def _levels(report: CapacityReport) -> Iterator[str]:
    if not report.levels:
        return
    terms = list(report.levels[0].shares)
    yield page.table(
        (
            "offered/s", "runs", "requests", "answered/s", "p50", "p99", "± of p99",
            *(f"miss {term}" for term in terms), "queue", "compute", "under way",
            "Little",
        ),
        (
            (
                page.number(level.requests_per_second),
                str(level.runs),
                str(level.requests),
                page.number(level.throughput),
                page.time(level.latency.p50),
                page.time(level.latency.p99),
                page.time(level.p99_deviation) if level.p99_deviation else "unknown",
                *(page.share(level.shares[term]) for term in terms),
                page.time(level.phases.queue) if level.phases else "unknown",
                page.time(
                    level.phases.compute_input
                    + level.phases.compute_infer
                    + level.phases.compute_output
                )
                if level.phases
                else "unknown",
                page.number(level.in_system),
                {True: "holds", False: "broken", None: "unknown"}[level.littles_law_holds],
            )
            for level in report.levels
        ),
    )  # fmt: skip
    found = report.capacity
    if found is not None and found.dispersion is not None:
        yield (
            f'<p class="soft">The misses of half a run vary {found.dispersion:.3g} times '
            "as much as independent ones would: requests wait in one queue. The "
            f"interval is made of {found.blocks} such blocks.</p>"
        )
    if report.mlperf is not None:
        met = "would be met" if report.mlperf.early_stopping_met else "would not be met"
        yield (
            f'<p class="soft">MLPerf, at the rate below the boundary: early stopping '
            f"{met} ({report.mlperf.queries} queries). {escape(_capital(report.mlperf.caveat))}."
            "</p>"
        )


def _concurrency(report: CapacityReport) -> Iterator[str]:
    if not report.closed_loop:
        return
    n = np.array([float(entry.concurrency) for entry in report.closed_loop])
    x = np.array([entry.throughput for entry in report.closed_loop])
    series = [Series("measured", n, x, "points")]
    if report.usl is not None:
        fine = np.geomspace(1.0, n.max(), _FINE)
        series.append(Series("USL", fine, _law(report.usl, fine)))
    marks = []
    knee = report.knee
    if knee is not None and knee.kneedle is not None:
        marks.append(Mark("Kneedle", x=knee.kneedle))
    if knee is not None and knee.law is not None:
        marks.append(Mark("USL's knee", x=min(knee.law, n.max())))
    yield "<h2>Throughput over concurrency</h2>"
    yield page.figure(
        Plot(
            "A closed loop: so many requests in flight",
            Axis("requests in flight", log=True),
            Axis("right answers a second", low=0.0),
            tuple(series),
            tuple(marks),
        )
    )
    yield from _told(report)


def _told(report: CapacityReport) -> Iterator[str]:
    usl, knee = report.usl, report.knee
    if usl is not None:
        yield page.facts(
            {
                "contention": _ends(usl.contention),
                "coherency": _ends(usl.coherency),
                "R²": usl.r_squared,
                "peak": usl.refused
                or f"{_ends(usl.peak_throughput)} at {_ends(usl.peak_concurrency)}",
            }
        )
    if knee is not None and knee.agree is False:
        yield '<p class="soft">Note: the two knees disagree; trust neither much.</p>'


def _law(usl: UslReport, n: np.ndarray) -> np.ndarray:
    return law(
        n, usl.per_unit.estimate, usl.contention.estimate, usl.coherency.estimate
    )


def _instances(report: CapacityReport) -> Iterator[str]:
    if not report.instances:
        return
    yield "<h2>Over instances</h2>"
    yield page.table(
        ("instances", "requests/s", "each, over the first"),
        (
            (
                str(entry.instances),
                _ends(entry.requests_per_second),
                "unknown" if entry.efficiency is None else f"{entry.efficiency:.0%}",
            )
            for entry in report.instances
        ),
    )


def _origin(report: CapacityReport) -> Iterator[str]:
    yield "<details><summary>How to get it again</summary>"
    yield page.facts(
        {
            "seed": report.seed,
            "runs beside the boundary": report.repetitions,
            "runs rejected": report.rejected_runs,
            "SHA-256 of the payloads": report.payload_sha256,
            "SHA-256 of the schedules": report.schedule_sha256,
            "settings": report.settings,
            "hardware of the sender": report.hardware,
            "versions": report.versions,
        }
    )
    yield "</details>"


def _ends(found: Bounds | None) -> str:
    if found is None:
        return "unknown"
    return f"{found.estimate:.4g} [{_end(found.low)}, {_end(found.high)}]"


def _end(value: float | None) -> str:
    return "open" if value is None else f"{value:.4g}"


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
