"""The reports for people: text, and pages with plots."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.efficiency.report_model import MODELLED
from loadtests.report import page
from loadtests.report.svg import Axis, Plot, Series

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.efficiency.report_model import (
        EfficiencyLevel,
        EfficiencyReport,
        Interval,
        LevelPower,
        PairReport,
    )

_NOT_MEASURED: Final = (
    "Power is modelled by a straight line between two given values, not measured: the "
    "shape of the curve is that of the assumption."
)


def curve_text(report: EfficiencyReport) -> str:
    """The curve for a terminal."""
    lines = [
        (
            f"efficiency of {', '.join(report.models)}: 100 % is "
            f"{report.maximum_per_second:.5g} requests a second"
        )
    ]
    for boundary, source in report.sources.items():
        lines.append(f"  {boundary} by {source}: {report.descriptions[boundary]}")
        if source == MODELLED:
            lines.append(f"  {_NOT_MEASURED}")
        lines.append("  level   inferences/s    watts  J/inference [95 %]    QPS/W")
        lines += [f"  {_row(level, boundary)}" for level in report.levels]
        lines.append(f"  overall score {report.score[boundary]:.4g} QPS/W")
    return "\n".join([*lines, _verdict(valid=report.valid, why=report.reasons)]) + "\n"


def pair_text(report: PairReport) -> str:
    """The pair for a terminal."""
    lines = [
        (
            f"{report.candidate} beside {report.reference}: {report.pairs} pairs of blocks "
            f"of {report.block_seconds:g} s"
        ),
        f"  speed-up       {_shown(report.speed_up)}",
    ]
    for boundary, ratio in report.energy_ratio.items():
        source = report.sources[boundary]
        lines.append(f"  energy ratio   {_shown(ratio)} ({boundary} by {source})")
        if source == MODELLED:
            lines.append(f"    {_NOT_MEASURED}")
    if report.accuracy_change is not None:
        told = ", ".join(
            f"{name} {value:.4f}" for name, value in report.accuracy.items()
        )
        lines.append(
            f"  accuracy       {_shown(report.accuracy_change)} on {report.rows} rows "
            f"({told})"
        )
    return "\n".join([*lines, _verdict(valid=report.valid, why=report.reasons)]) + "\n"


def curve_page(report: EfficiencyReport) -> str:
    """The curve as one HTML file."""
    title = f"Efficiency of {', '.join(report.models)}"
    return page.page(title, _curve_parts(report, title))


def curve_plot(report: EfficiencyReport, boundary: str) -> Plot:
    """Watts and inferences for each joule over the load."""
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


def _curve_parts(report: EfficiencyReport, title: str) -> Iterator[str]:
    yield f"<header><h1>{escape(title)}</h1>"
    yield (
        f'<p class="soft">100 % is {report.maximum_per_second:.5g} requests a second; '
        f"{report.level_seconds:g} s a level; seed {report.seed}</p>"
    )
    yield _page_verdict(valid=report.valid, why=report.reasons)
    if MODELLED in report.sources.values():
        yield page.verdict("note", _NOT_MEASURED)
    yield "</header><main>"
    yield page.tiles(
        {f"score, QPS/W ({b})": f"{value:.4g}" for b, value in report.score.items()}
    )
    for boundary in report.sources:
        yield page.figure(curve_plot(report, boundary))
        yield page.table(
            (
                "level",
                "offered/s",
                "inferences/s",
                "missed",
                "W",
                "J/inference",
                "QPS/W",
            ),
            [_cells(level, boundary) for level in report.levels],
        )
    yield "<h2>Where it comes from</h2>"
    yield page.facts({**report.descriptions, **report.versions, **report.hardware})
    yield "</main>"


def _cells(level: EfficiencyLevel, boundary: str) -> tuple[str, ...]:
    power = _power(level, boundary)
    return (
        level.name,
        f"{level.offered_per_second:.4g}",
        f"{level.inferences_per_second:.4g}",
        f"{level.miss_ratio:.2%}",
        f"{power.watts:.4g}",
        _shown(power.joules_per_inference),
        f"{power.inferences_per_second_per_watt:.4g}",
    )


def _row(level: EfficiencyLevel, boundary: str) -> str:
    power = _power(level, boundary)
    return (
        f"{level.name:<6} {level.inferences_per_second:>13.5g} {power.watts:>8.4g}"
        f"  {_shown(power.joules_per_inference):<20}"
        f" {power.inferences_per_second_per_watt:>6.4g}"
    )


def _power(level: EfficiencyLevel, boundary: str) -> LevelPower:
    return next(power for power in level.power if power.boundary == boundary)


def _shown(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    if interval.low is None or interval.high is None:
        return f"{interval.estimate:.4g} [too few]"
    return f"{interval.estimate:.4g} [{interval.low:.4g}, {interval.high:.4g}]"


def _verdict(*, valid: bool, why: tuple[str, ...]) -> str:
    return "  VALID" if valid else f"  INVALID: {'; '.join(why)}"


def _page_verdict(*, valid: bool, why: tuple[str, ...]) -> str:
    if valid:
        return page.verdict("good", "VALID: nothing speaks against these numbers")
    return page.verdict("bad", f"INVALID: {'; '.join(why)}")
