"""Plots as SVG: no script, nothing from elsewhere, colours by class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Shape = Literal["line", "area", "points", "band"]
_LATE: Final = 60
"""Per cent of the width, from which the word at a vertical line is on its left."""
_TICKS: Final = 6
_DECADES: Final = 1.2
_COLOURS: Final = 6
_LEAST_POINTS: Final = 3


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a plot: its label, range, scale and ticks."""

    label: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    ticks: tuple[tuple[float, str], ...] | None = None
    """Places and their labels; by default round numbers."""


@dataclass(frozen=True, slots=True)
class Series:
    """Points (N,) over x. A band has `upper` (N,), too; NaN leaves a gap."""

    name: str
    x: Floats
    y: Floats
    shape: Shape = "line"
    upper: Floats | None = None
    colour: int | None = None
    """Index of the colour; by default the index of the series."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A straight line across the plot, with a word at it."""

    text: str
    x: float | None = None
    y: float | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture with its axes and its key."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    tips: tuple[tuple[float, float, str], ...] = ()
    """Texts shown where the pointer rests, each for a range of x; by default the values."""
    height: int = 220
    """Of the plot itself in pixels, without the labels of the x axis."""
    left: int = 56
    """Room for the labels of the y axis, in pixels."""

    def render(self) -> str:
        """Return the `<svg>` element; caption and key are outside of it.

        Only its lines and areas are stretched to the width of the page, not its texts.
        """
        across, up = self._scales()
        parts = (
            self._opening(),
            *_grid(across, up),
            '<svg viewBox="0 0 100 100" preserveAspectRatio="none">',
            *self._drawn(across, up),
            "</svg>",
            *self._marked(across, up),
            *self._tipped(across),
            _text("tick", self.x.label, (50, 0), (100, 36), "middle"),
            "</svg>",
        )
        return "\n".join(parts)

    @property
    def caption(self) -> str:
        """Title, with the unit of the y axis."""
        return f"{self.title}, {self.y.label}" if self.y.label else self.title

    @property
    def key(self) -> list[tuple[str, str]]:
        """Colour class and name of each series; empty for a single one."""
        if len(self.series) == 1:
            return []
        return [(_colour(s, i), s.name) for i, s in enumerate(self.series) if s.name]

    def _opening(self) -> str:
        return (
            f'<svg class="plot" style="--left: {self.left}px" height="{self.height}" '
            f'role="img" aria-label="{escape(self._label())}">'
        )

    def _label(self) -> str:
        names = ", ".join(series.name for series in self.series if series.name)
        return f"{self.title}: {names}; {self.y.label} over {self.x.label}"

    def _scales(self) -> tuple[_Scale, _Scale]:
        xs = [s.x for s in self.series] + [_one(m.x) for m in self.marks]
        ys = [s.y for s in self.series] + [_one(m.y) for m in self.marks]
        ys += [s.upper for s in self.series if s.upper is not None]
        return _Scale.over(self.x, xs, 0, 100), _Scale.over(self.y, ys, 100, 0)

    def _drawn(self, across: _Scale, up: _Scale) -> Iterator[str]:
        for place, series in enumerate(self.series):
            colour = _colour(series, place)
            x, y = across.all(series.x), up.all(series.y)
            match series.shape:
                case "area":
                    for a, b in _pieces(x, y):
                        yield (
                            f'<path class="area {colour}" d="{_path(a, b)}'
                            f'L{a[-1]:.2f} 100L{a[0]:.2f} 100Z"/>'
                        )
                case "band":
                    yield from _band(x, y, up.all(_upper(series)), colour)
                case "line":
                    for a, b in _pieces(x, y):
                        yield f'<path class="line {colour}" d="{_path(a, b)}"/>'
                case "points":
                    known = np.isfinite(x) & np.isfinite(y)
                    dots = _path(x[known], y[known]).replace("L", "h0M")
                    yield f'<path class="dot {colour}" d="{dots}h0"/>'

    def _marked(self, across: _Scale, up: _Scale) -> Iterator[str]:
        for place, mark in enumerate(self.marks):
            if mark.y is not None:
                y = up.at(mark.y)
                yield _line("mark", across=False, at=y)
                yield _text("said", mark.text, (100, -4), (y, -4), "end")
            elif mark.x is not None:
                x = across.at(mark.x)
                yield _line("mark", across=True, at=x)
                # One line lower each, so that neighbours do not cover each other.
                line = 11 + 14 * (place % 3)
                beside, anchor = (-4, "end") if x > _LATE else (4, "start")
                yield _text("said", mark.text, (x, beside), (0, line), anchor)

    def _tipped(self, across: _Scale) -> Iterator[str]:
        for start, end, text in self.tips or self._values():
            x, until = across.at(start), across.at(end)
            yield (
                f'<rect class="tip" x="{x:.2f}%" y="0" width="{until - x:.2f}%" '
                f'height="100%"><title>{escape(text)}</title></rect>'
            )

    def _values(self) -> Iterator[tuple[float, float, str]]:
        """Yield the values of all lines at each point of the first."""
        lines = [s for s in self.series if s.name and s.shape in {"line", "area"}]
        if not lines or lines[0].x.size < _LEAST_POINTS or self.y.ticks is not None:
            return
        x = lines[0].x
        edges = np.concatenate((x[:1], (x[1:] + x[:-1]) / 2, x[-1:])).tolist()
        alike = [s for s in lines if np.array_equal(s.x, x)]
        for place, ends in enumerate(pairwise(edges)):
            values = [(s.name, s.y[place]) for s in alike if np.isfinite(s.y[place])]
            where = [] if self.x.ticks else [f"at {short(float(f'{x[place]:.4g}'))}"]
            yield (*ends, ", ".join(where + [f"{name} {v:.4g}" for name, v in values]))


def _grid(across: _Scale, up: _Scale) -> Iterator[str]:
    for value, label in up.ticks():
        y = up.at(value)
        yield _line("grid", across=False, at=y)
        yield _text("tick", label, (0, -6), (y, 4), "end")
    for place, (value, label) in enumerate(across.ticks()):
        x = across.at(value)
        yield _line("grid", across=True, at=x)
        # A phone has room for every second label.
        kind = "tick second" if place % 2 else "tick"
        yield _text(kind, label, (x, 0), (100, 17), "middle")


def _line(kind: str, *, across: bool, at: float) -> str:
    """A straight line over the whole plot, at a percentage of its width or height."""
    fixed, free = ("x", "y") if across else ("y", "x")
    return (
        f'<line class="{kind}" {fixed}1="{at:.2f}%" {fixed}2="{at:.2f}%" '
        f'{free}1="0" {free}2="100%"/>'
    )


def _text(
    kind: str, text: str, x: tuple[float, int], y: tuple[float, int], anchor: str
) -> str:
    """A text; `x` and `y` are a percentage of the plot and pixels from there."""
    return (
        f'<text class="{kind}" x="{x[0]:.2f}%" dx="{x[1]}" y="{y[0]:.2f}%" '
        f'dy="{y[1]}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _colour(series: Series, place: int) -> str:
    return f"c{(place if series.colour is None else series.colour) % _COLOURS}"


@dataclass(frozen=True, slots=True)
class _Scale:
    """Maps values to positions, in percent of the plot."""

    low: float
    high: float
    start: float
    end: float
    axis: Axis

    @classmethod
    def over(
        cls, axis: Axis, values: Sequence[Floats], start: float, end: float
    ) -> _Scale:
        whole = np.concatenate([np.ravel(v) for v in values]) if values else np.zeros(0)
        whole = whole[np.isfinite(whole)]
        if axis.log:
            whole = whole[whole > 0]
        least = float(whole.min()) if whole.size else 0.1
        most = float(whole.max()) if whole.size else 1.0
        low = least if axis.low is None else axis.low
        high = most if axis.high is None else axis.high
        if axis.log and high < low * _DECADES:
            low, high = low / _DECADES, high * _DECADES
        elif high <= low:
            low, high = low - 0.5, low + 0.5
        elif axis.high is None and not axis.log:
            high += 0.05 * (high - low)
        return cls(low, high, start, end, axis)

    def at(self, value: float) -> float:
        """The place of a value, kept inside the plot."""
        return float(self.all(np.array([value]))[0])

    def all(self, values: Floats) -> Floats:
        """The places of values (N,); NaN stays NaN."""
        inside = np.clip(values, self.low, self.high)
        if self.axis.log:
            share = np.log(inside / self.low) / math.log(self.high / self.low)
        else:
            share = (inside - self.low) / (self.high - self.low)
        places: Floats = self.start + share * (self.end - self.start)
        return places

    def ticks(self) -> list[tuple[float, str]]:
        """Tick values with their labels."""
        if self.axis.ticks is not None:
            return [t for t in self.axis.ticks if self.low <= t[0] <= self.high]
        values = _decades if self.axis.log else _round_numbers
        return [(v, short(v)) for v in values(self.low, self.high)]


def _round_numbers(low: float, high: float) -> list[float]:
    step = 10.0 ** math.floor(math.log10((high - low) / _TICKS))
    for factor in (1, 2, 5, 10):
        if (high - low) / (step * factor) <= _TICKS:
            step *= factor
            break
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _decades(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    few = high / low < 100  # noqa: PLR2004 - two decades
    parts = (1.0, 2.0, 5.0) if few else (1.0,)
    found = [part * 10.0**power for power in powers for part in parts]
    return [value for value in found if low <= value <= high]


def short(value: float) -> str:
    """A number in few characters."""
    size = abs(value)
    if size >= 1e6:  # noqa: PLR2004 - a million
        return f"{value / 1e6:.3g}M"
    if size >= 1e4:  # noqa: PLR2004 - four digits are read at a glance
        return f"{value / 1e3:.3g}k"
    return f"{value:.6g}" if size >= 1 else f"{value:.3g}"


def _pieces(x: Floats, y: Floats) -> Iterator[tuple[Floats, Floats]]:
    """The runs of points that are known."""
    known = np.isfinite(x) & np.isfinite(y)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], known.astype(np.int8), [0]))))
    for start, end in edges.reshape(-1, 2).tolist():
        yield x[start:end], y[start:end]


def _path(x: Floats, y: Floats) -> str:
    points = (f"{a:.2f} {b:.2f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    return "M" + "L".join(points)


def _upper(series: Series) -> Floats:
    return series.y if series.upper is None else series.upper


def _band(x: Floats, low: Floats, high: Floats, colour: str) -> Iterator[str]:
    known = np.isfinite(x) & np.isfinite(low) & np.isfinite(high)
    if known.any():
        x, low, high = x[known], low[known], high[known]
        back = _path(x[::-1], high[::-1]).replace("M", "L", 1)
        yield f'<path class="band {colour}" d="{_path(x, low)}{back}Z"/>'


def _one(value: float | None) -> Floats:
    return np.array([] if value is None else [value], np.float64)
