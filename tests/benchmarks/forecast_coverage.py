"""How often the passage that a forecast foresees lies inside its interval.

    python tests/benchmarks/forecast_coverage.py run [SERIES] > tests/benchmarks/forecast_coverage.jsonl
    python tests/benchmarks/forecast_coverage.py table --write

A known straight decay under noise: simulated, or the daily means of real records (flights,
weather) less their yearly wave. And nothing known: the same daily means as they are, looked
at every ten days, and what they did next.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from drift.forecast import Outlook, forecast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "support")]

import passages

MEASURED = HERE / "forecast_coverage.jsonl"
PAGE = HERE.parents[1] / "drift" / "README.md"
PASSAGE = "forecasts"
SEED = 20261121
SERIES = 400
WINDOWS = (40, 80, 160)
CORRELATIONS = (0.0, 0.5, 0.9)
DECAY = 8.0
"""Of the whole series, in standard deviations of its noise."""
EVERY_DAYS = 10
_PRESENT_SHARE = 0.9


def autoregressive(correlation: float, count: int, rng: np.random.Generator) -> Floats:
    """Normal noise of deviation 1."""
    fresh = rng.normal(size=count) * np.sqrt(1 - correlation**2)
    fresh[0] /= np.sqrt(1 - correlation**2)
    for index in range(1, count):
        fresh[index] += correlation * fresh[index - 1]
    return np.asarray(fresh)


def daily_means(name: str) -> dict[str, Floats]:
    """The mean of every day of a year, by column; columns that are mostly there."""
    import real_records  # noqa: PLC0415 - needs the path

    records = real_records.load(name)
    columns = [f.name for f in records.schema.features if f.tensor == "x"]
    with warnings.catch_warnings():
        # A day without a single value of a column has no mean: a gap.
        warnings.simplefilter("ignore", RuntimeWarning)
        means = np.array(
            [
                np.nanmean(np.asarray(day["x"], np.float64), axis=0)
                for day in records.days
            ]
        )
    return {
        column: values
        for column, values in zip(columns, means.T, strict=True)
        if np.isfinite(values).mean() >= _PRESENT_SHARE
    }


def without_year(values: Floats) -> Floats:
    """Less its mean and the first two harmonics of the year, in deviations."""
    angle = 2 * np.pi * np.arange(values.size) / 365.25
    waves = [np.ones(values.size)]
    waves += [f(k * angle) for k in (1, 2) for f in (np.cos, np.sin)]
    basis = np.stack(waves, axis=1)
    there = np.isfinite(values)
    weights = np.linalg.lstsq(basis[there], values[there], rcond=None)[0]
    rest = values - basis @ weights
    return np.asarray(rest / np.nanstd(rest))


def covered(noise: Floats, rng: np.random.Generator) -> bool | None:
    """Whether the passage of a decay under this noise is inside; None without a date."""
    count = noise.size
    slope = DECAY / count
    # From early in the future to as long again as the past.
    ahead = float(rng.uniform(1, count))
    series = noise - slope * np.arange(count)
    found = forecast(series, -slope * (count - 1 + ahead), rng)
    if found.outlook is not Outlook.DECAY:
        return None
    return found.low <= ahead <= found.high


def foreseen(values: Floats, count: int, rng: np.random.Generator) -> Iterator[bool]:
    """Every date given to a real series, and whether it kept it.

    The floor is a deviation of the past's residuals below the line's end. It is passed
    when the mean of n^(1/2) days is below it. What the year does not show any more is
    kept if the interval reaches beyond the year.
    """
    smooth = round(count**0.5)
    for now in range(count, values.size - smooth, EVERY_DAYS):
        past = values[now - count : now]
        there = np.isfinite(past)
        times = np.arange(count)[there]
        slope, start = np.polyfit(times, past[there], 1)
        deviation = np.std(past[there] - slope * times - start)
        floor = float(slope * (count - 1) + start - deviation)
        found = forecast(past, floor, rng)
        if found.outlook is not Outlook.DECAY:
            continue
        later = values[now:]
        means = [np.nanmean(later[i : i + smooth]) for i in range(later.size - smooth)]
        below = np.flatnonzero(np.array(means) < floor)
        if below.size:
            yield bool(found.low <= below[0] + smooth / 2 + 1 <= found.high)
        else:
            yield found.high > len(means)


def run(series: int) -> Iterator[dict[str, object]]:
    """Every line of the table."""
    for count in WINDOWS:
        for correlation in CORRELATIONS:
            yield _decays(
                f"simulated, correlation {correlation:g}",
                count,
                series,
                lambda rng, r=correlation, n=count: autoregressive(r, n, rng),
            )
        for name in ("flights", "weather"):
            columns = [without_year(v) for v in daily_means(name).values()]
            yield _decays(
                f"{name}, days",
                count,
                series,
                lambda rng, c=columns, n=count: _stretch(c, n, rng),
            )
    for name in ("flights", "weather"):
        for count in WINDOWS[:2]:
            rng = np.random.default_rng([SEED, count])
            kept = [
                inside
                for values in daily_means(name).values()
                for sign in (1, -1)
                for inside in foreseen(sign * values, count, rng)
            ]
            looks = len(range(count, 365 - round(count**0.5), EVERY_DAYS))
            yield {
                "kind": "itself",
                "noise": f"{name} as they are",
                "windows": count,
                "series": 2 * len(daily_means(name)) * looks,
                "dated": len(kept),
                "covered": sum(kept),
            }


def _decays(
    noise: str, count: int, series: int, draw: Callable[[np.random.Generator], Floats]
) -> dict[str, object]:
    rng = np.random.default_rng([SEED, count])
    found = [covered(draw(rng), rng) for _ in range(series)]
    dated = [inside for inside in found if inside is not None]
    return {
        "kind": "decay",
        "noise": noise,
        "windows": count,
        "series": series,
        "dated": len(dated),
        "covered": sum(dated),
    }


def _stretch(columns: list[Floats], count: int, rng: np.random.Generator) -> Floats:
    values = columns[rng.integers(len(columns))]
    start = rng.integers(values.size - count + 1)
    return values[start : start + count]


def table(lines: str) -> str:
    """The page's table."""
    head = "| noise | windows | series | given a date | inside the interval, 95 % |\n"
    rows = [
        f"| {'' if line['kind'] == 'itself' else 'straight decay, '}{line['noise']} "
        f"| {line['windows']} | {line['series']:,} | {line['dated']:,} | "
        f"{_share(line['covered'], line['dated'])} |\n"
        for line in map(json.loads, lines.splitlines())
    ]
    return head + "| --- " * 5 + "|\n" + "".join(rows)


def _share(covered: int, dated: int) -> str:
    interval = stats.binomtest(covered, dated).proportion_ci(method="exact")
    low, high = (100 * bound for bound in (interval.low, interval.high))
    return f"{100 * covered / dated:.0f} % ({low:.0f} to {high:.0f})"


def main(kind: str, *arguments: str) -> None:
    """All lines on stdout, or the table into the page."""
    if kind == "table":
        shown = table(MEASURED.read_text("utf-8"))
        passages.show(PASSAGE, shown, PAGE, write="--write" in arguments)
        return
    for line in run(int(arguments[0]) if arguments else SERIES):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
