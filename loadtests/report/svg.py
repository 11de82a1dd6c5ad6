"""Plots as SVG: no script, nothing from elsewhere, colours by class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Shape = Literal["line", "area", "points", "band"]
_WIDTH: Final = 720
_HEIGHT: Final = 280
_LEFT: Final = 64
_RIGHT: Final = 16
_TOP: Final = 40
_BOTTOM: Final = 44
_TICKS: Final = 6
_DECADES: Final = 1.2
_COLOURS: Final = 5


@dataclass(frozen=True, slots=True)
class Axis:
    """What runs along one side."""

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
    """Which of the colours; by default by its place."""


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

    def render(self) -> str:
        """The `<svg>` element."""
        across, up = self._scales()
        parts = (
            self._opening(),
            f'<text class="title" x="{_LEFT}" y="16">{escape(self.title)}</text>',
            *self._grid(across, up),
            *self._drawn(across, up),
            *self._marked(across, up),
            *self._key(),
            "</svg>",
        )
        return "\n".join(parts)

    def _opening(self) -> str:
        return (
            f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'xmlns="http://www.w3.org/2000/svg" aria-label="{escape(self._told())}">'
        )

    def _told(self) -> str:
        names = ", ".join(series.name for series in self.series if series.name)
        return f"{self.title}: {names}; {self.y.label} over {self.x.label}"

    def _scales(self) -> tuple[_Scale, _Scale]:
        xs = [s.x for s in self.series] + [_one(m.x) for m in self.marks]
        ys = [s.y for s in self.series] + [_one(m.y) for m in self.marks]
        ys += [s.upper for s in self.series if s.upper is not None]
        return (
            _Scale.over(self.x, xs, _LEFT, _WIDTH - _RIGHT),
            _Scale.over(self.y, ys, _HEIGHT - _BOTTOM, _TOP),
        )

    def _grid(self, across: _Scale, up: _Scale) -> Iterator[str]:
        bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        for value, label in up.ticks():
            y = up.at(value)
            yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>'
            yield (
                f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" '
                f'text-anchor="end">{escape(label)}</text>'
            )
        for value, label in across.ticks():
            x = across.at(value)
            yield f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>'
            yield (
                f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" '
                f'text-anchor="middle">{escape(label)}</text>'
            )
        middle = (_LEFT + right) / 2
        yield (
            f'<text class="label" x="{middle:.0f}" y="{_HEIGHT - 6}" '
            f'text-anchor="middle">{escape(self.x.label)}</text>'
        )
        yield (
            f'<text class="label" transform="translate(13 {(_TOP + bottom) / 2:.0f}) '
            f'rotate(-90)" text-anchor="middle">{escape(self.y.label)}</text>'
        )

    def _drawn(self, across: _Scale, up: _Scale) -> Iterator[str]:
        floor = up.at(up.low)
        for place, series in enumerate(self.series):
            colour = (
                f"c{(place if series.colour is None else series.colour) % _COLOURS}"
            )
            x, y = across.all(series.x), up.all(series.y)
            match series.shape:
                case "points":
                    known = np.isfinite(x) & np.isfinite(y)
                    for a, b in zip(x[known].tolist(), y[known].tolist(), strict=True):
                        yield f'<circle class="dot {colour}" cx="{a:.1f}" cy="{b:.1f}" r="2.6"/>'
                case "area":
                    for a, b in _pieces(x, y):
                        yield (
                            f'<path class="area {colour}" d="{_path(a, b)}'
                            f'L{a[-1]:.1f} {floor:.1f}L{a[0]:.1f} {floor:.1f}Z"/>'
                        )
                case "band":
                    yield from _band(x, y, up.all(_upper(series)), colour)
                case "line":
                    for a, b in _pieces(x, y):
                        yield f'<path class="line {colour}" d="{_path(a, b)}"/>'

    def _marked(self, across: _Scale, up: _Scale) -> Iterator[str]:
        bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        for place, mark in enumerate(self.marks):
            if mark.y is not None:
                y = up.at(mark.y)
                yield f'<path class="mark" d="M{_LEFT} {y:.1f}H{right}"/>'
                yield (
                    f'<text class="said" x="{right - 4}" y="{y - 4:.1f}" '
                    f'text-anchor="end">{escape(mark.text)}</text>'
                )
            elif mark.x is not None:
                x = across.at(mark.x)
                yield f'<path class="mark" d="M{x:.1f} {_TOP}V{bottom}"/>'
                # One line lower each, so that neighbours do not cover each other.
                line = _TOP + 11 + 13 * (place % 3)
                yield f'<text class="said" x="{x + 4:.1f}" y="{line}">{escape(mark.text)}</text>'

    def _key(self) -> Iterator[str]:
        if len(self.series) == 1:
            return
        x = float(_WIDTH - _RIGHT)
        named = [(i, s) for i, s in enumerate(self.series) if s.name]
        for place, series in reversed(named):
            colour = (
                f"c{(place if series.colour is None else series.colour) % _COLOURS}"
            )
            x -= 6.8 * len(series.name) + 24
            yield f'<rect class="key {colour}" x="{x:.0f}" y="8" width="10" height="10" rx="2"/>'
            yield f'<text class="tick" x="{x + 14:.0f}" y="17">{escape(series.name)}</text>'


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values to places."""

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
        """Values and what is written at them."""
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
    points = (f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
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


STYLE: Final = """
svg.plot { display: block; width: 100%; height: auto; }
.plot .title { font-weight: 600; font-size: 13px; fill: var(--ink); }
.plot .tick { font-size: 11px; fill: var(--soft); }
.plot .label { font-size: 11px; fill: var(--soft); }
.plot .said { font-size: 11px; fill: var(--ink); }
.plot .grid { stroke: var(--line); stroke-width: 1; fill: none; }
.plot .mark { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 5 4; fill: none; }
.plot .line { stroke: var(--series); stroke-width: 1.8; fill: none;
  stroke-linejoin: round; }
.plot .area, .plot .band { fill: var(--series); fill-opacity: .22; }
.plot .dot, .plot .key { fill: var(--series); }
.c0 { --series: var(--c0); } .c1 { --series: var(--c1); } .c2 { --series: var(--c2); }
.c3 { --series: var(--c3); } .c4 { --series: var(--c4); }
"""

LIGHT: Final = (
    "--c0: #2f7fd1; --c1: #c4501b; --c2: #2b8a57; --c3: #7b56c2; --c4: #a8830c;"
)
DARK: Final = (
    "--c0: #6aaef5; --c1: #f08a5d; --c2: #63c992; --c3: #b49cf0; --c4: #dcbc4f;"
)


def standalone(plot: Plot, style: Callable[[], str] | None = None) -> str:
    """A file of its own, on white."""
    extra = style() if style else ""
    css = (
        f"svg {{ {LIGHT} --ink: #1b1f24; --soft: #59636e; --line: #d8dee4; "
        f"font-family: system-ui, sans-serif; background: #fff; }}{STYLE}{extra}"
    )
    head, _, rest = plot.render().partition(">")
    return f"{head}><style>{css}</style>{rest}\n"
