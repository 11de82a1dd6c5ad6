"""The report of one load run, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.report.objective_report import (
    left_out,
    objective_table,
    objective_verdict,
)
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

    from loadtests.efficiency.efficiency_report import EfficiencyReport, PairReport
    from loadtests.report.run_figures import Latency, Quantile, Spread
    from loadtests.report.run_report import RunReport, Slice
    from pages.blocks import Block

_QUANTILE_TICKS: Final = tuple(
    (1.0 / (1.0 - q), f"{100 * q:.6g} %")
    for q in (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
)
_MOST_PHASE_MARKS: Final = 12
_MOST_PHASES: Final = 100
_MS: Final = 1e3
_SECONDS: Final = Axis("seconds from the start of the run", low=0.0)
_MEANING: Final = {
    "error": "the server refused it or failed, or the connection did",
    "wrong": "answered with success, but not correctly",
    "timeout": "no answer in time, see --timeout",
    "rejected": "not sent: too many were in flight, see --in-flight",
    "unsent": "the run ended before it was due",
}
"""Meaning of each outcome of a miss."""
_QUANTILES: Final = ("p50", "p90", "p95", "p99", "p999")


def document(report: RunReport) -> Document:
    """Return the report of a run."""
    kind = report.profile.get("kind", report.mode)
    about = (
        f"{kind} over {report.protocol} at {report.address} · "
        f"{units.instant(report.started_at)} · {report.duration_seconds:.4g} s · "
        f"seed {report.seed}"
    )
    return Document(
        f"Load run of {', '.join(report.models)}", _blocks(report), (about,)
    )


def verdict(report: RunReport | EfficiencyReport | PairReport) -> Verdict:
    """Return the verdict on the validity of the numbers, with reservations about valid ones."""
    if not report.valid:
        return Verdict("bad", f"INVALID: {'; '.join(report.reasons)}")
    if report.warnings:
        text = f"VALID with reservations: {'; '.join(report.warnings)}"
        return Verdict("doubt", text)
    return Verdict("good", "VALID: no reason against these numbers")


def notes(report: RunReport | EfficiencyReport | PairReport) -> Iterator[Block]:
    """Yield the warnings that the verdict does not contain."""
    for warning in () if report.valid else report.warnings:
        yield Paragraph(f"note: {warning}", soft=True)


def _blocks(report: RunReport) -> Iterator[Block]:
    yield from _verdicts(report)
    yield from notes(report)
    if report.goodput is not None and report.goodput.unmeasured:
        yield Paragraph(f"goodput not measured: {report.goodput.unmeasured}")
    yield Tiles(_tiles(report))
    if report.slices:
        yield Section("Over time", map(Figure, _over_time(report)))
        if report.streams is not None:
            yield Section("Streamed answers", map(Figure, _streamed(report)))
        yield Section("Distribution", map(Figure, _distribution(report)))
    yield from _latencies(report)
    yield from _profile(report)
    yield Fold("How to repeat it", [_origin(report)], in_text=False)


def _verdicts(report: RunReport) -> Iterator[Block]:
    """Yield the most important verdict first: invalid numbers prove no objective."""
    judged = objective_verdict(report)
    if judged is None:
        yield verdict(report)
        return
    both = [Verdict(*judged), verdict(report)]
    yield from both if report.valid else reversed(both)
    yield objective_table(report.objectives)
    yield from (Paragraph(text, soft=True) for text in left_out(report))


def _tiles(report: RunReport) -> dict[str, str]:
    offered = (
        {"offered per second": units.number(report.intended_rate)}
        if report.mode == "open"
        else {}
    )
    return {
        **offered,
        "correct answers per second": units.number(report.throughput),
        "median latency": units.duration(report.latency.p50.value),
        "p99 latency": _latency(report, report.latency, "p99"),
        "failed": f"{units.percent(report.miss_ratio)} of {report.requests}",
        **_stream_tiles(report),
    }


def _stream_tiles(report: RunReport) -> dict[str, str]:
    tiles: dict[str, str] = {}
    if report.first_response is not None:
        tiles["p99 first response"] = _latency(report, report.first_response, "p99")
    if report.mean_gap is not None:
        tiles["median token or response gap"] = _latency(report, report.mean_gap, "p50")
    if report.streams is not None:
        tokens = report.streams.output_tokens_per_second
        if tokens is None:
            said = units.number(report.streams.responses_per_second)
            tiles["responses per second"] = said
        else:
            each = units.number(report.streams.output_tokens_of_a_request)
            tiles["output tokens per second"] = (
                f"{units.number(tokens)} ({each} a request)"
            )
    if report.goodput is not None and not report.goodput.unmeasured:
        good, share = report.goodput, units.percent(report.goodput.ratio)
        tiles[f"per second within {good.limits}"] = (
            f"{units.number(good.requests_per_second)} ({share})"
        )
    return tiles


def _over_time(report: RunReport) -> Iterator[Plot]:
    slices, marks = report.slices, _phase_marks(report)
    times = np.array([s.start_seconds for s in slices])
    width = report.duration_seconds / max(len(slices), 1)
    supported = [n for n, q in (("p95", 0.95), ("p99", 0.99)) if _supports(report, q)]
    yield Plot(
        "Latency from the intended send",
        _SECONDS,
        Axis("milliseconds", log=True),
        (
            Series("median", times, _column(slices, "p50")),
            *(Series(name, times, _column(slices, name)) for name in supported),
            Series("slowest", times, _column(slices, "max"), "points"),
        ),
        (*marks, *_limits(report, "latency")),
    )
    offered = np.array([s.offered_per_second for s in slices])
    # By the time of the answer: what came late would look as if the server had kept up.
    completed = np.array([s.completed_per_second for s in slices])
    yield Plot(
        "Requests due and answered",
        _SECONDS,
        Axis("per second", low=0.0),
        (
            Series("due", times, offered, "area"),
            Series("answered correctly", times, completed, colour=2),
        ),
        marks,
    )
    if any(s.missed for s in slices):
        missed = np.array([float(s.missed) for s in slices])
        yield Plot(
            "Missed: errors, wrong answers, timeouts, rejected",
            _SECONDS,
            Axis("requests", low=0.0),
            (
                Series("missed", times, missed, "area", colour=1),
                *(
                    Series(o.term, times, o.allowed_ratio * offered * width, colour=3)
                    for o in report.objectives
                    if o.limit_seconds is None
                ),
            ),
        )


def _supports(report: RunReport, q: float) -> bool:
    """Return False if the q-quantile of a typical slice is the slowest of its requests."""
    rates = [s.offered_per_second for s in report.slices] or [0.0]
    width = report.duration_seconds / len(rates)
    return bool(width * np.median(rates) * (1.0 - q) >= 1)


def _streamed(report: RunReport) -> Iterator[Plot]:
    slices, marks = report.slices, _phase_marks(report)
    times = np.array([s.start_seconds for s in slices])
    tail = "p99" if _supports(report, 0.99) else "slowest"
    for title, name, measure in (
        ("Time to the first response", "first_response", "ttft"),
        ("Time for each token or response after the first", "mean_gap", "itl"),
    ):
        spreads = [getattr(s, name) for s in slices]
        if any(spreads):
            yield Plot(
                title,
                _SECONDS,
                Axis("milliseconds", log=True),
                tuple(
                    Series(shown, times, _quantiles_of(spreads, quantile))
                    for shown, quantile in (("median", "p50"), (tail, "p99"))
                ),
                (*marks, *_limits(report, measure)),
            )


def _quantiles_of(spreads: list[Spread | None], quantile: str) -> np.ndarray:
    return _MS * np.array(
        [np.nan if one is None else getattr(one, quantile) for one in spreads]
    )


def _distribution(report: RunReport) -> Iterator[Plot]:
    if len(report.curve) < 2:  # noqa: PLR2004 - no line through one point
        return
    x = np.array([1.0 / (1.0 - p.quantile) for p in report.curve])
    due = np.array([p.from_intended for p in report.curve])
    sent = np.array([units.or_nan(p.from_send) for p in report.curve])
    yield Plot(
        "Latency by percentile",
        Axis("percentile", log=True, ticks=_QUANTILE_TICKS),
        Axis("milliseconds", log=True),
        (
            Series("from the intended send", x, due * _MS),
            Series("from the send", x, sent * _MS),
        ),
        _limits(report, "latency"),
    )


def _phase_marks(report: RunReport) -> tuple[Mark, ...]:
    if not 1 < len(report.parts) <= _MOST_PHASE_MARKS:
        return ()
    return tuple(Mark(part.name, x=part.start_seconds) for part in report.parts)


def _limits(report: RunReport, measure: str) -> tuple[Mark, ...]:
    """The limits of the objective as lines, in milliseconds."""
    return tuple(
        Mark(one.term, y=one.limit_seconds * _MS)
        for one in report.objectives
        if one.measure == measure and one.limit_seconds is not None
    )


def _column(slices: tuple[Slice, ...], name: str) -> np.ndarray:
    return np.array([units.or_nan(getattr(s, name)) for s in slices]) * _MS


def _latencies(report: RunReport) -> Iterator[Block]:
    kinds = {
        "from the intended send": report.latency,
        "from the send": report.from_send,
        "sender late by": report.dispatch_delay,
        "to the first response": report.first_response,
        "a token or response after it": report.mean_gap,
        "between responses": report.between_responses,
    }
    yield Table(
        ("latency", *_QUANTILES[:-1], "p99.9", "max"),
        [
            (
                kind,
                *(_latency(report, latency, q) for q in _QUANTILES),
                units.duration(latency.max),
            )
            for kind, latency in kinds.items()
            if latency is not None and latency.count
        ],
    )
    p99 = report.latency.p99
    if p99.low is not None and p99.high is not None:
        yield Paragraph(
            f"95 % interval of p99: {units.duration(p99.low)} to "
            f"{units.duration(p99.high)}: {p99.effective_requests:.0f} independent "
            "requests would give the same. Latency from the intended send is exact and "
            "counts requests without a correct answer as infinitely late; gaps between "
            "responses and the sender's delay are within 1.1 %.",
            soft=True,
        )
    elif p99.interval_unknown:
        yield Paragraph(f"No interval of p99: {p99.interval_unknown}.", soft=True)


def _latency(report: RunReport, latency: Latency, quantile: str) -> str:
    """A quantile; "no answer" where it is one of the misses."""
    found: Quantile = getattr(latency, quantile)
    answered = 1.0 - (report.miss_ratio or 0.0)
    missed = latency is report.latency and float(f"0.{quantile[1:]}") > answered
    # One that the requests do not support has neither.
    missed |= bool(found.effective_requests or found.interval_unknown)
    return (
        "no answer" if missed and found.value is None else units.duration(found.value)
    )


def _profile(report: RunReport) -> Iterator[Block]:
    if len(report.parts) > _MOST_PHASES:
        text = f"{len(report.parts)} phases of the profile; a report's --json has them."
        yield Paragraph(text, soft=True)
    elif report.parts:
        table = Table(
            ("phase", "from", "to", "offered/s", "requests", "p50", "p99", "missed"),
            [
                (
                    part.name,
                    f"{part.start_seconds:.4g} s",
                    f"{part.end_seconds:.4g} s",
                    units.number(part.offered_per_second),
                    str(part.requests),
                    units.duration(part.p50),
                    units.duration(part.p99),
                    units.percent(part.miss_ratio),
                )
                for part in report.parts
            ],
        )
        yield Section("Phases of the profile", [table])
    trend = report.trend
    if trend is not None and report.profile.get("kind") == "soak":
        yield Paragraph(
            f"The median {'rises' if trend.rises else 'does not rise for certain'}: "
            f"{units.duration(trend.seconds_per_hour)} an hour, 95 % interval "
            f"{units.duration(trend.low)} to {units.duration(trend.high)}."
        )
    missed = [
        (name, str(count), _MEANING[name])
        for name, count in report.outcomes.items()
        if count and name in _MEANING
    ]
    if missed:
        rows = [(message, str(count)) for message, count in report.errors.items()]
        tables = [Table(("message", "times"), rows)] if rows else []
        heads = ("outcome", "requests", "meaning")
        yield Section("Errors", [Table(heads, missed), *tables])


def _origin(report: RunReport) -> Facts:
    return Facts(
        {
            "profile": report.profile,
            "seed": report.seed,
            "SHA-256 of the payloads": report.payload_sha256,
            "senders": report.workers,
            "processor time of the sender": units.duration(report.sender_cpu_seconds),
            "outcomes": report.outcomes,
            "hardware of the sender": report.hardware,
            "versions": report.versions,
        }
    )
