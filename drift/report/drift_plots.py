"""The plots of a judgement: two distributions, and distances compared with their null."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.grid import ABOVE, BELOW, OTHER, UNSEEN
from drift.statistics import STATISTICS
from pages.plots import Axis, Mark, Plot, Series, short
from pages.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from drift.judgement import Distance
    from drift.reference import Profile
    from drift.window import Counts

    Floats = NDArray[np.float64]

MAX_BARS: Final = 48
MAX_CATEGORIES: Final = 16
_MAX_LABEL: Final = 14
_FEW: Final = 5
_HALF_BAR: Final = 0.3


@dataclass(frozen=True, slots=True)
class Bars:
    """Shares of the reference and of the data, bar by bar, and a label of each."""

    reference: Floats
    data: Floats
    labels: tuple[str, ...]
    ordered: bool


def bars(profile: Profile, counts: Counts, feature: int) -> Bars:
    """Return few bars: cells merged, or the commonest categories."""
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


def distribution(shown: Bars) -> Plot:
    """Return the shares of the reference as an area and those of the data as a line."""
    edges = np.arange(len(shown.labels) + 1.0)
    gap = 0.0 if shown.ordered else 0.15
    tips = tuple(
        (i, i + 1.0, f"{label}: {percent(old)} before, {percent(new)} now")
        for i, (label, old, new) in enumerate(
            zip(shown.labels, shown.reference, shown.data, strict=True)
        )
    )
    return Plot(
        "Share of rows",
        Axis("", low=0.0, high=edges[-1], ticks=tuple(_ticks(shown))),
        Axis("percent", low=0.0),
        (
            Series("reference", *_steps(edges, shown.reference, gap), "area", colour=0),
            Series("data", *_steps(edges, shown.data, gap), colour=1),
        ),
        tips=tips,
        height=140,
    )


def _steps(edges: Floats, shares: Floats, gap: float) -> tuple[Floats, Floats]:
    """Return flat steps over the cells; NaN parts them where there are gaps."""
    percents = 100 * shares
    if not gap:
        return np.repeat(edges, 2)[1:-1], np.repeat(percents, 2)
    lows, highs = edges[:-1] + gap, edges[1:] - gap
    none = np.full_like(percents, np.nan)
    zero = np.zeros_like(percents)
    x = np.stack((lows, lows, highs, highs, none), axis=1).ravel()
    y = np.stack((zero, percents, percents, zero, none), axis=1).ravel()
    return x, y


def _ticks(shown: Bars) -> Iterator[tuple[float, str]]:
    count = len(shown.labels)
    step = -(-count // (5 if shown.ordered else 8))
    for index in range(0, count, step):
        label = shown.labels[index]
        if shown.ordered:
            left = label.strip("[]()").split(", ")[0]
            label = "below" if left == "-inf" else short(float(f"{float(left):.3g}"))
        place = index if shown.ordered else index + 0.5
        yield float(place), label[: _MAX_LABEL if count <= _FEW else _MAX_LABEL // 2]


def distances(found: Sequence[Distance]) -> Plot:
    """Return each distance over its null's 99.9 % bound: a row for each statistic."""
    rows = [float(len(found) - place) for place in range(len(found))]
    bounds = [max(one.null_bound, 1e-12) for one in found]
    ratios = [max(d.value, 0.0) / b for d, b in zip(found, bounds, strict=True)]
    top = max(*ratios, 1.0) * 1.05
    bars = tuple(
        Series(
            "",
            np.array([0.0, ratio]),
            np.full(2, row - _HALF_BAR),
            "band",
            upper=np.full(2, row + _HALF_BAR),
            colour=1 if one.beyond else 0,
        )
        for one, row, ratio in zip(found, rows, ratios, strict=True)
    )
    means = np.array([d.null_mean / b for d, b in zip(found, bounds, strict=True)])
    names = (f"{STATISTICS[one.kind].title} {one.value:.3g}" for one in found)
    return Plot(
        "Distances",
        Axis("ratio to the 99.9 % bound", low=0.0, high=top),
        Axis(
            "",
            low=0.4,
            high=len(found) + 0.6,
            ticks=tuple(zip(rows, names, strict=True)),
        ),
        (
            *bars,
            Series("mean of unchanged data", means, np.array(rows), "points", colour=5),
        ),
        (Mark("bound", x=1.0),),
        height=16 + 24 * len(found),
        left=200,
    )
