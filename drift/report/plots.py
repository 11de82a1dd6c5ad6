"""Plots as inline SVG: two distributions over each other, distances beside their null."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.grid import ABOVE, BELOW, OTHER, UNSEEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from drift.judgement import Distance
    from drift.reference import Profile
    from drift.window import Counts

    Floats = NDArray[np.float64]

MAX_BARS: Final = 48
MAX_CATEGORIES: Final = 16
_WIDTH: Final = 560
_HEIGHT: Final = 150
_LEFT: Final = 40
_FLOOR: Final = 122
_CEILING: Final = 12
_SCORE_WIDTH: Final = 160
_MAX_LABEL: Final = 14


@dataclass(frozen=True, slots=True)
class Bars:
    """Shares of the reference and of the data, bar by bar, and a label of each."""

    reference: Floats
    data: Floats
    labels: tuple[str, ...]
    ordered: bool


def bars(profile: Profile, counts: Counts, feature: int) -> Bars:
    """Few enough bars to see: cells put together, or the commonest categories."""
    old, new = profile.counts.cells[feature], counts.cells[feature]
    if feature < profile.schema.numeric:
        return _numeric(profile, feature, old, new)
    return _categories(profile, feature, old, new)


def _numeric(
    profile: Profile, feature: int, old: NDArray[np.int64], new: NDArray[np.int64]
) -> Bars:
    inner = slice(BELOW + 1, ABOVE)
    filled = np.flatnonzero((old[inner] > 0) | (new[inner] > 0))
    first = int(filled[0]) + 1 if filled.size else 1
    last = int(filled[-1]) + 1 if filled.size else 1
    step = -(-(last - first + 1) // MAX_BARS)
    groups = [(BELOW, BELOW)] if old[BELOW] or new[BELOW] else []
    groups += [(i, min(i + step - 1, last)) for i in range(first, last + 1, step)]
    groups += [(ABOVE, ABOVE)] if old[ABOVE] or new[ABOVE] else []
    labels = tuple(profile.cell_label(feature, *group) for group in groups)
    return Bars(_shares(old, groups), _shares(new, groups), labels, ordered=True)


def _shares(cells: NDArray[np.int64], groups: Sequence[tuple[int, int]]) -> Floats:
    sums = np.array([cells[a : b + 1].sum() for a, b in groups], np.float64)
    return np.asarray(sums / max(float(cells[: ABOVE + 1].sum()), 1.0))


def _categories(
    profile: Profile, feature: int, old: NDArray[np.int64], new: NDArray[np.int64]
) -> Bars:
    values = profile.categories[feature - profile.schema.numeric].values
    named = np.arange(len(values))
    both = old[named] / max(old[named].sum(), 1) + new[named] / max(new[named].sum(), 1)
    shown = named[np.argsort(-both, kind="stable")[:MAX_CATEGORIES]]
    rest = np.setdiff1d(named, shown)
    pairs = [(values[i], old[i], new[i]) for i in shown]
    pairs.append(("other", old[OTHER] + old[rest].sum(), new[OTHER] + new[rest].sum()))
    pairs.append(("unseen", old[UNSEEN], new[UNSEEN]))
    pairs = [pair for pair in pairs if pair[1] or pair[2]]
    sides = [np.array([float(pair[i]) for pair in pairs]) for i in (1, 2)]
    first, second = (side / max(float(side.sum()), 1.0) for side in sides)
    return Bars(first, second, tuple(str(p[0]) for p in pairs), ordered=False)


def distribution(shown: Bars, name: str) -> str:
    """The reference as filled bars, the data as an outline over them."""
    count = len(shown.labels)
    if count == 0:
        return '<p class="soft">no values to draw</p>'
    top = float(max(shown.reference.max(), shown.data.max(), 1e-9))
    width = (_WIDTH - _LEFT - 8) / count
    parts = [
        (
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'aria-label="{escape(name)}: shares of the reference and of the data">'
        ),
        *_axis(top),
    ]
    for index in range(count):
        left = _LEFT + index * width
        parts.append(_bar(shown, index, left, width, top))
    parts += _outline(shown, width, top) if shown.ordered else ()
    parts += _ticks(shown, width)
    parts.append("</svg>")
    return "".join(parts)


def _axis(top: float) -> Iterable[str]:
    for share in (0.0, top / 2, top):
        y = _y(share, top)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y}" y2="{y}"/>'
        yield (
            f'<text class="tick" x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">'
            f"{100 * share:.3g}%</text>"
        )


def _bar(shown: Bars, index: int, left: float, width: float, top: float) -> str:
    old, new = float(shown.reference[index]), float(shown.data[index])
    tip = f"{shown.labels[index]}: {100 * old:.2f} % before, {100 * new:.2f} % now"
    gap = 0.0 if shown.ordered else width * 0.15
    y = _y(old, top)
    rectangle = (
        f'<rect class="old" x="{left + gap:.1f}" y="{y}" '
        f'width="{max(width - 2 * gap, 0.5):.1f}" height="{round(_FLOOR - y, 1)}"/>'
    )
    if not shown.ordered:
        y = _y(new, top)
        rectangle += (
            f'<rect class="new" x="{left + gap:.1f}" y="{y}" '
            f'width="{width - 2 * gap:.1f}" height="{round(_FLOOR - y, 1)}"/>'
        )
    whole = (
        f'<rect class="hit" x="{left:.1f}" y="{_CEILING}" width="{width:.1f}" '
        f'height="{_FLOOR - _CEILING}"/>'
    )
    return f"<g><title>{escape(tip)}</title>{rectangle}{whole}</g>"


def _outline(shown: Bars, width: float, top: float) -> Iterable[str]:
    points = [f"{_LEFT},{_FLOOR}"]
    for index, share in enumerate(shown.data):
        y = _y(float(share), top)
        left = _LEFT + index * width
        points += [f"{left:.1f},{y}", f"{left + width:.1f},{y}"]
    points.append(f"{_LEFT + width * len(shown.data):.1f},{_FLOOR}")
    yield f'<polyline class="line" points="{" ".join(points)}"/>'


def _ticks(shown: Bars, width: float) -> Iterable[str]:
    count = len(shown.labels)
    longest = max(len(label[:_MAX_LABEL]) for label in shown.labels)
    step = -(-count // 5) if shown.ordered else max(1, round(6 * (longest + 1) / width))
    for index in range(0, count, step):
        label = shown.labels[index]
        if shown.ordered:
            left = label.strip("[)").split(", ")[0]
            label = "below" if left == "-inf" else f"{float(left):.5g}"
            x, anchor = _LEFT + index * width, "start"
        else:
            x, anchor = _LEFT + (index + 0.5) * width, "middle"
        yield (
            f'<text class="tick" x="{x:.1f}" y="{_FLOOR + 16}" '
            f'text-anchor="{anchor}">{escape(label[:_MAX_LABEL])}</text>'
        )


def _y(share: float, top: float) -> float:
    return round(_FLOOR - (_FLOOR - _CEILING) * share / top, 1)


def distance(found: Distance) -> str:
    """A bar as long as the distance, with marks at its null's mean and bound."""
    whole = max(found.value, found.null_bound, 1e-12) * 1.05
    value, mean, bound = (
        round(_SCORE_WIDTH * max(number, 0.0) / whole, 1)
        for number in (found.value, found.null_mean, found.null_bound)
    )
    tone = "beyond" if found.beyond else "within"
    label = (
        f"{found.value:.4g}; without change {found.null_mean:.3g} on average, below "
        f"{found.null_bound:.3g} in 99.9 %"
    )
    return (
        f'<svg viewBox="0 0 {_SCORE_WIDTH} 16" role="img" aria-label="{label}">'
        f"<title>{label}</title>"
        f'<rect class="null" x="0" y="0" width="{bound}" height="16"/>'
        f'<rect class="{tone}" x="0" y="5" width="{max(value, 0.5)}" height="6"/>'
        f'<line class="mean" x1="{mean}" x2="{mean}" y1="2" y2="14"/>'
        f'<line class="bound" x1="{bound}" x2="{bound}" y1="0" y2="16"/>'
        "</svg>"
    )
