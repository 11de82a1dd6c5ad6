"""The reports of efficiency over the load and of two models side by side, for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.efficiency.efficiency_report import MODELLED
from loadtests.report.run_document import notes, verdict
from pages import units
from pages.blocks import (
    Document,
    Facts,
    Figure,
    Section,
    Table,
    Tiles,
    Verdict,
)
from pages.plots import Axis, Plot, Series

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadtests.efficiency.efficiency_report import (
        EfficiencyLevel,
        EfficiencyReport,
        Interval,
        LevelPower,
        PairReport,
    )
    from pages.blocks import Block, Tone

_NOT_MEASURED: Final = (
    "Power is modelled by a straight line between two given values, not measured: how "
    "energy changes with the load follows from this assumption."
)
_HEADS: Final = (
    "level", "offered/s", "inferences/s", "missed", "W", "J/inference [95 %]", "QPS/W",
)  # fmt: skip


def curve_document(report: EfficiencyReport) -> Document:
    """Return the report of a curve."""
    about = (
        f"100 % is {report.maximum_per_second:.5g} requests per second; "
        f"{report.level_seconds:g} s per level; seed {report.seed}"
    )
    title = f"Efficiency of {', '.join(report.models)}"
    return Document(title, _curve(report), (about,))


def pair_document(report: PairReport) -> Document:
    """Return the report of two models."""
    about = f"{report.pairs} pairs of blocks of {report.block_seconds:g} s"
    title = f"{report.candidate} compared with {report.reference}"
    return Document(title, _pair(report), (about,))


def curve_plot(report: EfficiencyReport, boundary: str) -> Plot:
    """Return the plot of power and of inferences for each joule, relative to their highest."""
    levels = sorted(report.levels, key=lambda level: level.load_ratio)
    powers = [_power(level, boundary) for level in levels]
    load = np.array([100 * level.load_ratio for level in levels])
    watts = np.array([power.watts for power in powers])
    rates = np.array([p.inferences_per_second_per_watt for p in powers])
    full, top = float(watts.max()) or 1.0, float(rates.max()) or 1.0
    return Plot(
        f"Power and efficiency of the {boundary}",
        Axis("load, % of the maximum", 0.0, 100.0),
        Axis("% of the highest", 0.0),
        (
            Series("power", load, 100 * watts / full),
            Series("QPS/W", load, 100 * rates / top),
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
        yield Section(f"{boundary}, power source: {source}", [plot, table])
    facts = {**report.descriptions, **report.versions, **report.hardware}
    yield Section("Sources", [Facts(facts)])


def _pair(report: PairReport) -> Iterator[Block]:
    figures = [_Figure("speed-up", report.speed_up, 1.0, "faster", "slower")]
    figures += [
        _Figure(
            f"energy ratio, {boundary} (power source: {report.sources[boundary]})",
            ratio,
            1.0,
            "more energy",
            "less energy",
            more_is_better=False,
        )
        for boundary, ratio in report.energy_ratio.items()
    ]
    if report.accuracy_change is not None:
        each = ", ".join(f"{name} {v:.4f}" for name, v in report.accuracy.items())
        name = f"accuracy on {report.rows} rows ({each})"
        accuracy = report.accuracy_change
        figures.append(_Figure(name, accuracy, 0.0, "more accurate", "less accurate"))
    if report.valid:
        yield _conclusion(report, figures)
    yield from _verdict(report)
    rows = [(f.name, _shown(f.interval), f.finding) for f in figures]
    yield Table(("figure", "change [95 %]", "finding"), rows)


@dataclass(frozen=True, slots=True)
class _Figure:
    """One change from the reference to the candidate."""

    name: str
    interval: Interval
    unchanged: float
    above: str
    below: str
    more_is_better: bool = True

    @property
    def side(self) -> int:
        """Return 1 where the whole interval is above no change, -1 below, else 0."""
        low, high = self.interval.low, self.interval.high
        if low is None or high is None:
            return 0
        return int(low > self.unchanged) - int(high < self.unchanged)

    @property
    def finding(self) -> str:
        """Return the finding of the interval, in two or three words."""
        undecided = "too few pairs" if self.interval.low is None else "undecided"
        return {1: self.above, -1: self.below, 0: undecided}[self.side]

    @property
    def gain(self) -> int:
        """Return 1 where the candidate is better, -1 where it is worse, else 0."""
        return self.side if self.more_is_better else -self.side


def _conclusion(report: PairReport, figures: Sequence[_Figure]) -> Verdict:
    gains = {figure.gain for figure in figures}
    shown = [f"{f.finding} ({f.name})" for f in figures if f.side]
    if not shown:
        text = (
            "no difference is shown; more pairs or longer blocks narrow the intervals"
        )
        return Verdict("doubt", f"{report.candidate}: {text}")
    tone: Tone = "note" if gains >= {1, -1} else "good" if 1 in gains else "bad"
    return Verdict(tone, f"{report.candidate}: {'; '.join(shown)}")


def _row(level: EfficiencyLevel, boundary: str) -> tuple[str, ...]:
    power = _power(level, boundary)
    return (
        level.name,
        units.number(level.offered_per_second),
        units.number(level.inferences_per_second),
        units.percent(level.miss_ratio),
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
        return f"{interval.estimate:.4g} [unknown]"
    return f"{interval.estimate:.4g} [{interval.low:.4g}, {interval.high:.4g}]"


def _verdict(report: EfficiencyReport | PairReport) -> Iterator[Block]:
    yield verdict(report)
    if MODELLED in report.sources.values():
        yield Verdict("note", _NOT_MEASURED)
    yield from notes(report)
