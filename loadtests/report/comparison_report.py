"""Detects that a second run is worse than a first, with a known error rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from pydantic import Field

from exporter.settings import Settings
from loadtests.report.run_report import waits
from pages import units
from pages.blocks import Document, Paragraph, Table, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.capacity.search_report import Bounds, CapacityReport
    from loadtests.result import Floats, RunResult
    from pages.blocks import Tone

Call = Literal["same", "better", "worse", "unknown"]
RESAMPLES: Final = 1000
_BLOCK_SECONDS: Final = 1.0
_LEAST_BLOCKS: Final = 8
_MOST_BLOCKS: Final = 60
_ERROR_RATE: Final = 0.05
_NORMAL: Final = 1.959964
_QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_MISSES: Final = "misses"
_SAID: Final = {
    "same": "no regression: every figure is the same within the tolerance",
    "better": "no regression: at least one figure is better, none is worse",
    "worse": "REGRESSION",
    "unknown": "not enough data to tell",
}
_TONES: Final[dict[str, Tone]] = {"worse": "bad", "unknown": "note"}


class Change(Settings):
    """One figure of the two runs."""

    name: str
    before: float | None
    """Null where it cannot be told, or is infinite."""
    after: float | None
    ratio: float | None
    """After over before; of `misses` the difference of the shares."""
    low: float | None
    """Ends of its simultaneous 95 % interval."""
    high: float | None
    call: Call


class Comparison(Settings):
    """What `tritonwatch load report A B` says."""

    format: Literal["tritonwatch-load-comparison"] = "tritonwatch-load-comparison"
    version: Literal[1] = 1
    call: Call
    """`worse` if any figure is; `unknown` if none is but some cannot be told."""
    changes: tuple[Change, ...]
    tolerance_ratio: float
    """A change has to be larger than this to matter."""
    error_rate: float = Field(default=_ERROR_RATE)
    """Chance to call anything worse that is the same, over all figures together."""
    problems: tuple[str, ...] = Field(default=())
    """What keeps the two from being comparable."""


def compared(
    before: RunResult, after: RunResult, *, tolerance_ratio: float, seed: int
) -> Comparison:
    """Latency quantiles over all requests, and the share of misses, by block bootstrap.

    Requests are cut by time into blocks (a second, at most sixty), which are drawn anew
    with replacement; neighbouring requests share a queue and are not independent. The
    intervals hold together (Bonferroni). A figure is worse where its whole interval is,
    and its estimate by more than the tolerance; the same where the whole interval is
    within twice the tolerance; else it is not known.
    """
    problems = _problems(before, after)
    rng = np.random.default_rng(seed)
    blocks = _blocks(before), _blocks(after)
    tail = _ERROR_RATE / 2 / (len(_QUANTILES) + 1)
    changes = [
        _quantile(name, q, blocks, rng, tail, tolerance_ratio)
        for name, q in _QUANTILES.items()
    ]
    changes.append(_misses(blocks, rng, tail, tolerance_ratio))
    return _concluded(changes, problems, tolerance_ratio)


def capacities_compared(
    before: CapacityReport, after: CapacityReport, *, tolerance_ratio: float
) -> Comparison:
    """The two capacities, by their intervals on a logarithmic scale."""
    problems = [
        f"{which} is INVALID: {'; '.join(report.reasons)}"
        for which, report in (("the first", before), ("the second", after))
        if not report.valid
    ]
    if before.slo != after.slo:
        problems.append(f"objectives differ: {before.slo} and {after.slo}")
    first, second = (
        None if r.capacity is None else r.capacity.requests_per_second
        for r in (before, after)
    )
    name = "capacity"
    change = Change(
        name=name,
        before=None if first is None else first.estimate,
        after=None if second is None else second.estimate,
        ratio=None,
        low=None,
        high=None,
        call="unknown",
    )
    deviations = _deviation(first), _deviation(second)
    if first is not None and second is not None and None not in deviations:
        ratio = second.estimate / first.estimate
        both = math.sqrt(sum(d * d for d in deviations if d is not None))
        spread = math.exp(_NORMAL * both)
        low, high = ratio / spread, ratio * spread
        # Less capacity is worse: the inverse is what a latency would do.
        call = _called(1 / ratio, 1 / high, 1 / low, tolerance_ratio)
        change = change.model_copy(
            update={"ratio": ratio, "low": low, "high": high, "call": call}
        )
    return _concluded([change], problems, tolerance_ratio)


def _deviation(ends: Bounds | None) -> float | None:
    if ends is None or ends.low is None or ends.high is None:
        return None
    return (math.log(ends.high) - math.log(ends.low)) / (2 * _NORMAL)


def _concluded(
    changes: list[Change], problems: list[str], tolerance_ratio: float
) -> Comparison:
    calls = {change.call for change in changes}
    call: Call = "same"
    if problems:
        call = "unknown"
    elif "worse" in calls:
        call = "worse"
    elif "unknown" in calls:
        call = "unknown"
    elif "better" in calls:
        call = "better"
    return Comparison(
        call=call,
        changes=tuple(changes),
        tolerance_ratio=tolerance_ratio,
        problems=tuple(problems),
    )


def _problems(before: RunResult, after: RunResult) -> list[str]:
    found = [
        f"{which} is {result.verdict}"
        for which, result in (("the first", before), ("the second", after))
        if not result.verdict.valid
    ]
    if before.about.mode != after.about.mode:
        found.append(f"one is an {before.about.mode} loop, the other not")
    if before.about.entries != after.about.entries:
        found.append("they loaded different models")
    elif _differently_filled(before, after):
        found.append("they sent different payloads")
    rates = before.intended_rate, after.intended_rate
    if before.about.mode == "open" and abs(rates[1] / rates[0] - 1) > _ERROR_RATE:
        found.append(f"they offered {rates[0]:.4g} and {rates[1]:.4g} requests/s")
    return found


def _differently_filled(before: RunResult, after: RunResult) -> bool:
    """Other bytes for the same seed; another seed draws others on purpose."""
    same_seed = before.about.seed == after.about.seed
    return same_seed and before.about.payload_sha256 != after.about.payload_sha256


Blocks = list["Floats"]


def _blocks(result: RunResult) -> Blocks:
    """Waits in seconds, by when they were due; infinite for misses."""
    length = result.duration_seconds
    count = int(min(max(length / _BLOCK_SECONDS, 1), _MOST_BLOCKS))
    edges = np.linspace(0.0, length, count + 1)[1:-1]
    place = np.searchsorted(edges, result.requests.intended, "right")
    late = waits(result.requests)
    return [late[place == i] for i in range(count)]


def _drawn(blocks: Blocks, rng: np.random.Generator) -> Floats:
    chosen = rng.integers(0, len(blocks), len(blocks))
    return np.concatenate([blocks[i] for i in chosen.tolist()])


def _quantile(
    name: str,
    q: float,
    blocks: tuple[Blocks, Blocks],
    rng: np.random.Generator,
    tail: float,
    tolerance: float,
) -> Change:
    before, after = (_at(np.concatenate(side), q) for side in blocks)
    change = Change(
        name=name,
        before=_finite(before),
        after=_finite(after),
        ratio=None,
        low=None,
        high=None,
        call="unknown",
    )
    few = min(len(side) for side in blocks) < _LEAST_BLOCKS
    if few or not math.isfinite(before) or before <= 0:
        return change
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.array(
            [
                _at(_drawn(blocks[1], rng), q) / _at(_drawn(blocks[0], rng), q)
                for _ in range(RESAMPLES)
            ]
        )
    ratios = np.nan_to_num(ratios, nan=1.0, posinf=np.inf)
    low, high = np.quantile(ratios, (tail, 1 - tail), method="nearest").tolist()
    ratio = after / before
    return change.model_copy(
        update={
            "ratio": _finite(ratio),
            "low": _finite(low),
            "high": _finite(high),
            "call": _called(ratio, low, high, tolerance),
        }
    )


def _misses(
    blocks: tuple[Blocks, Blocks],
    rng: np.random.Generator,
    tail: float,
    tolerance: float,
) -> Change:
    before, after = (_missed(np.concatenate(side)) for side in blocks)
    rises = np.array(
        [
            _missed(_drawn(blocks[1], rng)) - _missed(_drawn(blocks[0], rng))
            for _ in range(RESAMPLES)
        ]
    )
    low, high = np.quantile(rises, (tail, 1 - tail)).tolist()
    # Of shares a hundredth of the tolerance matters: 5 % is 0.05 percentage points.
    matters = tolerance / 100
    call: Call = "unknown"
    if low > 0 and after - before > matters:
        call = "worse"
    elif high < 0 and before - after > matters:
        call = "better"
    elif max(abs(low), abs(high)) <= max(2 * matters, 1e-9):
        call = "same"
    return Change(
        name=_MISSES,
        before=before,
        after=after,
        ratio=after - before,
        low=low,
        high=high,
        call=call,
    )


def _called(ratio: float, low: float, high: float, tolerance: float) -> Call:
    """Return what the ratio of a figure says of which more is worse."""
    if low > 1 and ratio > 1 + tolerance:
        return "worse"
    if high < 1 and ratio < 1 / (1 + tolerance):
        return "better"
    wide = 1 + 2 * tolerance
    return "same" if low >= 1 / wide and high <= wide else "unknown"


def _at(values: Floats, q: float) -> float:
    if not values.size:
        return math.nan
    return float(
        np.partition(values, rank := max(math.ceil(q * values.size), 1) - 1)[rank]
    )


def _missed(values: Floats) -> float:
    return float(np.mean(~np.isfinite(values))) if values.size else 0.0


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def sentence(comparison: Comparison) -> str:
    """Return the result in words."""
    said = _SAID[comparison.call]
    if comparison.problems:
        return f"not comparable: {'; '.join(comparison.problems)}"
    worse = [change.name for change in comparison.changes if change.call == "worse"]
    return f"{said} in {', '.join(worse)}" if worse else said


def document(comparison: Comparison, before: str, after: str) -> Document:
    """Return the report; `before` and `after` are the names of the files."""
    return Document(
        f"{after} compared with {before}",
        (
            Verdict(_TONES.get(comparison.call, "good"), sentence(comparison)),
            Table(
                ("figure", "before", "after", "change", "interval", "verdict"),
                [(c.name, *_cells(c), c.call) for c in comparison.changes],
            ),
            Paragraph(
                f"More than {comparison.tolerance_ratio:.0%} matters; the chance of a "
                f"false alarm over all figures is {comparison.error_rate:.0%}.",
                soft=True,
            ),
        ),
    )


def _cells(change: Change) -> tuple[str, str, str, str]:
    show: Callable[[float | None], str] = units.duration
    moved: Callable[[float | None], str] = _change
    if change.name == "misses":
        show = moved = units.percent
    elif change.name == "capacity":
        show = units.number
    return (
        show(change.before),
        show(change.after),
        moved(change.ratio),
        f"[{moved(change.low)}, {moved(change.high)}]",
    )


def _change(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{ratio - 1:+.1%}"
