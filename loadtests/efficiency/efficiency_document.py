"""The reports of efficiency over the load and of two models side by side, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.efficiency.efficiency_report import MODELLED
from pages import units
from pages.blocks import (
    Document,
    Facts,
    Figure,
    Paragraph,
    Section,
    Table,
    Tiles,
    Verdict,
)
from pages.plots import Axis, Plot, Series

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.efficiency.efficiency_report import (
        EfficiencyLevel,
        EfficiencyReport,
        Interval,
        LevelPower,
        PairReport,
    )
    from pages.blocks import Block

_NOT_MEASURED: Final = (
    "Power is modelled by a straight line between two given values, not measured: the "
    "shape of the curve is that of the assumption."
)
_HEADS: Final = (
    "level", "offered/s", "inferences/s", "missed", "W", "J/inference", "QPS/W",
)  # fmt: skip


def curve_document(report: EfficiencyReport) -> Document:
    """Return the report of a curve."""
    about = (
        f"100 % is {report.maximum_per_second:.5g} requests a second; "
        f"{report.level_seconds:g} s a level; seed {report.seed}"
    )
    title = f"Efficiency of {', '.join(report.models)}"
    return Document(title, _curve(report), (about,))


def pair_document(report: PairReport) -> Document:
    """Return the report of two models."""
    about = f"{report.pairs} pairs of blocks of {report.block_seconds:g} s"
    title = f"{report.candidate} compared with {report.reference}"
    return Document(title, _pair(report), (about,))


def curve_plot(report: EfficiencyReport, boundary: str) -> Plot:
    """Return the plot of watts and of inferences for each joule over the load."""
    levels = sorted(report.levels, key=lambda level: level.load_ratio)
    powers = [_power(level, boundary) for level in levels]
    load = np.array([100 * level.load_ratio for level in levels])
    watts = np.array([power.watts for power in powers])
    rates = np.array([p.inferences_per_second_per_watt for p in powers])
    top = float(rates.max()) or 1.0
    return Plot(
        f"{boundary} by {report.sources[boundary]}: power, and efficiency in % of its best",
        Axis("load, % of the maximum", 0.0, 100.0),
        Axis("W; %", 0.0),
        (
            Series("power W", load, watts),
            Series("QPS/W in % of best", load, 100 * rates / top),
        ),
    )


def _curve(report: EfficiencyReport) -> Iterator[Block]:
    yield from _verdict(report)
    yield Tiles(
        {
            f"overall score, QPS/W ({boundary})": f"{value:.4g}"
            for boundary, value in report.score.items()
        }
    )
    for boundary, source in report.sources.items():
        table = Table(_HEADS, [_row(level, boundary) for level in report.levels])
        plot = Figure(curve_plot(report, boundary))
        yield Section(f"{boundary} by {source}", [plot, table])
    facts = {**report.descriptions, **report.versions, **report.hardware}
    yield Section("Sources", [Facts(facts)])


def _pair(report: PairReport) -> Iterator[Block]:
    yield from _verdict(report)
    rows = [("speed-up", _shown(report.speed_up))]
    rows += [
        (f"energy ratio, {boundary} by {report.sources[boundary]}", _shown(ratio))
        for boundary, ratio in report.energy_ratio.items()
    ]
    if report.accuracy_change is not None:
        each = ", ".join(f"{name} {v:.4f}" for name, v in report.accuracy.items())
        rows.append((f"accuracy on {report.rows} rows ({each})", _shown(report.accuracy_change)))  # fmt: skip
    yield Table(("figure", "change [95 %]"), rows)


def _row(level: EfficiencyLevel, boundary: str) -> tuple[str, ...]:
    power = _power(level, boundary)
    return (
        level.name,
        units.number(level.offered_per_second),
        units.number(level.inferences_per_second),
        f"{level.miss_ratio:.2%}",
        units.number(power.watts),
        _shown(power.joules_per_inference),
        units.number(power.inferences_per_second_per_watt),
    )


def _power(level: EfficiencyLevel, boundary: str) -> LevelPower:
    return next(power for power in level.power if power.boundary == boundary)


def _shown(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    if interval.low is None or interval.high is None:
        return f"{interval.estimate:.4g} [too few]"
    return f"{interval.estimate:.4g} [{interval.low:.4g}, {interval.high:.4g}]"


def _verdict(report: EfficiencyReport | PairReport) -> Iterator[Block]:
    if report.valid:
        yield Verdict("good", "VALID: nothing speaks against these numbers")
    else:
        yield Verdict("bad", f"INVALID: {'; '.join(report.reasons)}")
    if MODELLED in report.sources.values():
        yield Verdict("note", _NOT_MEASURED)
    for warning in report.warnings:
        yield Paragraph(f"note: {warning}", soft=True)
