"""The report of a capacity search, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.load_objective import parse
from pages import units
from pages.blocks import (
    Document,
    Facts,
    Figure,
    Fold,
    Paragraph,
    Section,
    Table,
    Tiles,
    Verdict,
)
from pages.plots import Axis, Mark, Plot, Series

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.capacity.search_report import CapacityReport
    from pages.blocks import Block, Tone

_MS: Final = 1e3
_LEAST_SHARE: Final = 1e-5
# Of a logarithmic axis, which has no 0.
_SHARES: Final = (
    (_LEAST_SHARE, "0"), (1e-4, "0.01"), (1e-3, "0.1"), (0.01, "1"), (0.1, "10"), (1.0, "100"),
)  # fmt: skip


def document(report: CapacityReport) -> Document:
    """Return the report of a search."""
    about = (
        f"{report.slo} over {report.protocol} at {report.address} · "
        f"{units.instant(report.started_at)} · {report.spent_seconds:.0f} s · "
        f"seed {report.seed}"
    )
    return Document(f"Capacity of {report.model}", _blocks(report), (about,))


def _blocks(report: CapacityReport) -> Iterator[Block]:
    said = report.conclusion
    if not report.valid:
        said = f"INVALID: {'; '.join(report.reasons)}; {said}"
    yield Verdict(_tone(report), said)
    for warning in report.warnings:
        yield Paragraph(f"note: {warning}", soft=True)
    yield Tiles(_tiles(report))
    yield Section("The boundary", _boundary(report))
    yield Fold("How to repeat it", [_origin(report)], in_text=False)


def _tone(report: CapacityReport) -> Tone:
    if not report.valid:
        return "bad"
    if report.capacity is None:
        return "note"
    ends = report.capacity.requests_per_second
    return "note" if ends.low is None or ends.high is None else "good"


def _tiles(report: CapacityReport) -> dict[str, str]:
    found = report.capacity
    tiles = {}
    if found is not None:
        ends = found.requests_per_second
        tiles["requests a second"] = units.number(ends.estimate)
        known = ends.low is not None or ends.high is not None
        interval = f"{_end(ends.low)} to {_end(ends.high)}" if known else "unknown"
        tiles["95 % interval"] = interval
    tiles["saturates"] = report.saturation.resource
    tiles["one request alone"] = units.duration(report.reference.start_p50)
    return tiles


def _boundary(report: CapacityReport) -> Iterator[Block]:
    if len(report.levels) > 1:  # one point makes no line
        yield from map(Figure, _plots(report))
    yield Paragraph(f"{units.capital(report.saturation.evidence)}.")
    if report.levels:
        yield _levels(report)
    found = report.capacity
    if found is not None and found.dispersion is not None:
        yield Paragraph(
            f"The misses of half a run vary {found.dispersion:.3g} times as much as "
            "independent ones would: requests wait in one queue. The interval is made "
            f"of {found.blocks} such blocks"
            + (
                f"; {found.effective_requests:.0f} independent requests would give the same."
                if found.effective_requests
                else "."
            ),
            soft=True,
        )


def _plots(report: CapacityReport) -> Iterator[Plot]:
    levels, found = report.levels, report.capacity
    rates = np.array([level.requests_per_second for level in levels])
    axis = Axis("requests a second offered")
    at: tuple[Mark, ...] = ()
    if found is not None:
        at = (Mark("capacity", x=found.requests_per_second.estimate),)
    series = list(_interval(report))
    for place, term in enumerate(levels[0].shares):
        shares = np.array([level.shares[term] for level in levels])
        series.append(Series(f"miss {term}", rates, shares, colour=place))
        series.append(Series("", rates, shares, "points", colour=place))
    allowed = (
        Mark(f"{t.text} allows {units.percent(t.allowed_ratio)}", y=t.allowed_ratio)
        for t in parse(report.slo).terms
    )
    yield Plot(
        "Share of requests that miss the objective",
        axis,
        Axis("percent", log=True, low=_LEAST_SHARE, high=1.0, ticks=_SHARES),
        tuple(series),
        (*at, *allowed),
    )
    latencies = tuple(
        Series(
            name,
            rates,
            np.array([units.or_nan(getattr(level.latency, name)) for level in levels])
            * _MS,
        )
        for name in ("p50", "p95", "p99")
    )
    milliseconds = Axis("milliseconds", log=True)
    yield Plot("Latency over offered rate", axis, milliseconds, latencies, at)


def _interval(report: CapacityReport) -> Iterator[Series]:
    ends = None if report.capacity is None else report.capacity.requests_per_second
    if ends is not None and ends.low is not None and ends.high is not None:
        x = np.array([ends.low, ends.high])
        low, high = np.full(2, _LEAST_SHARE), np.ones(2)
        yield Series("95 % interval", x, low, "band", upper=high, colour=2)


def _levels(report: CapacityReport) -> Table:
    terms = list(report.levels[0].shares)
    heads = (
        "offered/s", "runs", "requests", "answered/s", "p50", "p99", "± of p99",
        *(f"miss {term}" for term in terms), "queue", "compute",
    )  # fmt: skip
    rows = []
    for level in report.levels:
        phases = level.phases
        compute = None
        if phases is not None:
            compute = (
                phases.compute_input + phases.compute_infer + phases.compute_output
            )
        rows.append(
            (
                units.number(level.requests_per_second),
                str(level.runs),
                str(level.requests),
                units.number(level.throughput),
                units.duration(level.latency.p50),
                units.duration(level.latency.p99),
                units.duration(level.p99_deviation or None),
                *(units.percent(level.shares[term]) for term in terms),
                units.duration(None if phases is None else phases.queue),
                units.duration(compute),
            )
        )
    return Table(heads, rows)


def _origin(report: CapacityReport) -> Facts:
    return Facts(
        {
            "seed": report.seed,
            "runs behind the result": report.repetitions,
            "runs rejected": report.rejected_runs,
            "SHA-256 of the payloads": report.payload_sha256,
            "SHA-256 of the schedules": report.schedule_sha256,
            "settings": report.settings,
            "hardware of the sender": report.hardware,
            "versions": report.versions,
        }
    )


def _end(value: float | None) -> str:
    return "open" if value is None else f"{value:.4g}"
