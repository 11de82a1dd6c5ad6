"""Detects that a second run is worse than a first, with a known error rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from exporter.settings import Settings
from loadtests.dependent_intervals import (
    Side,
    difference,
    logarithm,
    missed_side,
    quantile_side,
)
from loadtests.report.run_report import reservations
from loadtests.result import finite
from pages import units
from pages.blocks import Document, Items, Paragraph, Table, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loadtests.capacity.search_report import Bounds, CapacityReport
    from loadtests.result import About, Floats, RunResult
    from pages.blocks import Tone

Call = Literal["same", "better", "worse", "unknown"]
_LEAST_SECONDS: Final = 8.0
"""Length below which a run may miss slow spells."""
_ERROR_RATE: Final = 0.05
_NORMAL: Final = 1.959964
_QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_CONFIDENCE: Final = 1.0 - _ERROR_RATE / (len(_QUANTILES) + 1)
"""Confidence of each figure, so that all hold together (Bonferroni)."""
_MISSES: Final = "misses"
_NAMES: Final = {"slo": "objective"}
_FREE: Final = {"concurrency", "duration_seconds", "requests_per_second"}
"""Settings of a profile that are compared otherwise, or may differ."""
_SAID: Final = {
    "same": "no regression: every figure is the same within the tolerance",
    "better": "no regression: at least one figure is better, none is worse",
    "worse": "REGRESSION",
    "unknown": "not enough data to decide",
}
_TONES: Final[dict[str, Tone]] = {"worse": "bad", "unknown": "note"}


class Change(Settings):
    """One figure of the two runs."""

    name: str
    before: float | None
    """Null where it is unknown or infinite."""
    after: float | None
    ratio: float | None
    """After over before; for `misses` the difference of the shares."""
    low: float | None
    """Ends of its simultaneous 95 % interval."""
    high: float | None
    call: Call
    reason: str = ""
    """Reason why the data give no interval, where there is none."""


class Comparison(Settings):
    """Result of `tritonwatch load report A B`."""

    format: Literal["tritonwatch-load-comparison"] = "tritonwatch-load-comparison"
    version: Literal[1] = 1
    call: Call
    """`worse` if any figure is; `unknown` if none is but some are unknown."""
    changes: tuple[Change, ...]
    tolerance_ratio: float
    """A change has to be larger than this to matter."""
    error_rate: float = Field(default=_ERROR_RATE)
    """Chance to call anything worse that is the same, over all figures together."""
    problems: tuple[str, ...] = Field(default=())
    """Reasons why the two cannot be compared."""
    warnings: tuple[str, ...] = Field(default=())
    """Reservations about either of the two."""


def compared(
    before: RunResult, after: RunResult, *, tolerance_ratio: float
) -> Comparison:
    """Latency quantiles over all requests, and the share of misses.

    The interval of each side is that of its effective number of independent
    requests; both together give that of the ratio, or of the difference of shares. The
    intervals hold together. A figure is worse where its whole interval is, and its
    estimate by more than the tolerance; the same where the whole interval is within
    twice the tolerance; else it is not known.
    """
    problems = _problems(before, after)
    waits = before.requests.waits, after.requests.waits
    seconds = min(before.duration_seconds, after.duration_seconds)
    short = (
        f"{seconds:.3g} s are less than {_LEAST_SECONDS:g} s"
        if seconds < _LEAST_SECONDS
        else ""
    )
    changes = [
        _quantile(name, q, waits, tolerance_ratio, short)
        for name, q in _QUANTILES.items()
    ]
    changes.append(_misses(waits, tolerance_ratio))
    warnings = _reservations(reservations(before), reservations(after))
    return _concluded(changes, problems, warnings, tolerance_ratio)


def capacities_compared(
    before: CapacityReport, after: CapacityReport, *, tolerance_ratio: float
) -> Comparison:
    """The two capacities, by their intervals on a logarithmic scale."""
    problems = [
        f"{which} is INVALID: {'; '.join(report.reasons)}"
        for which, report in (("the first", before), ("the second", after))
        if not report.valid
    ]
    for what in ("slo", "model", "protocol"):
        one, other = getattr(before, what), getattr(after, what)
        if one != other:
            problems.append(f"{_NAMES.get(what, what)}s differ: {one} and {other}")
    if before.model == after.model and _differently_filled(before, after):
        problems.append("they sent different payloads")
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
    warnings = _reservations(before.warnings, after.warnings)
    return _concluded([change], problems, warnings, tolerance_ratio)


def _reservations(before: Iterable[str], after: Iterable[str]) -> tuple[str, ...]:
    return (
        *(f"the first: {warning}" for warning in before),
        *(f"the second: {warning}" for warning in after),
    )


def _deviation(ends: Bounds | None) -> float | None:
    if ends is None or ends.low is None or ends.high is None:
        return None
    return (math.log(ends.high) - math.log(ends.low)) / (2 * _NORMAL)


def _concluded(
    changes: list[Change],
    problems: list[str],
    warnings: tuple[str, ...],
    tolerance_ratio: float,
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
        warnings=warnings,
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
    elif _differently_filled(before.about, after.about):
        found.append("they sent different payloads")
    found += _differently_sent(before.about, after.about)
    rates = before.intended_rate, after.intended_rate
    if before.about.mode == "open" and abs(rates[1] / rates[0] - 1) > _ERROR_RATE:
        found.append(f"they offered {rates[0]:.4g} and {rates[1]:.4g} requests/s")
    return found


def _differently_sent(before: About, after: About) -> list[str]:
    """Return what makes one wait where the other does not: concurrency, arrivals, timeout."""
    found = []
    if before.mode == after.mode == "closed" and before.in_flight != after.in_flight:
        found.append(
            f"they kept {before.in_flight} and {after.in_flight} requests in flight"
        )
    if before.timeout_seconds != after.timeout_seconds:
        seconds = f"{before.timeout_seconds:g} s and {after.timeout_seconds:g} s"
        found.append(f"timeouts differ: {seconds}")
    # A setting of one alone is that of another version; rates are compared as sent.
    for name in sorted(before.profile.keys() & after.profile.keys() - _FREE):
        one, other = before.profile[name], after.profile[name]
        if one != other:
            found.append(f"profiles differ in {name}: {one} and {other}")
    return found


def _differently_filled(
    before: About | CapacityReport, after: About | CapacityReport
) -> bool:
    """Other bytes for the same seed; another seed draws others on purpose."""
    same_seed = before.seed == after.seed
    return same_seed and before.payload_sha256 != after.payload_sha256


def _quantile(
    name: str, q: float, waits: tuple[Floats, Floats], tolerance: float, short: str
) -> Change:
    before, after = (quantile_side(side, q, _CONFIDENCE) for side in waits)
    reason = short or _first_reason(before, after)
    change = Change(
        name=name,
        before=finite(before.value),
        after=finite(after.value),
        ratio=None,
        low=None,
        high=None,
        call="unknown",
        reason=reason,
    )
    # A bound is infinite where too many requests were missed.
    ends = (before.low, before.value, before.high)
    if reason or not all(0 < end < math.inf for end in ends) or after.low <= 0:
        return change
    if math.isfinite(after.value):
        low, high = difference(logarithm(before), logarithm(after))
    else:
        low, high = math.log(after.low / before.high), math.inf
    ratio = after.value / before.value
    low, high = math.exp(low), math.exp(high)
    return change.model_copy(
        update={
            "ratio": finite(ratio),
            "low": finite(low),
            "high": finite(high),
            "call": _called(ratio, low, high, tolerance),
        }
    )


def _misses(waits: tuple[Floats, Floats], tolerance: float) -> Change:
    before, after = (missed_side(side, _CONFIDENCE) for side in waits)
    reason = _first_reason(before, after)
    change = Change(
        name=_MISSES,
        before=before.value,
        after=after.value,
        ratio=after.value - before.value,
        low=None,
        high=None,
        call="unknown",
        reason=reason,
    )
    if reason:
        return change
    rise = after.value - before.value
    low, high = difference(before, after)
    if not before.value and not after.value:
        low = high = 0.0
    # Of shares a hundredth of the tolerance matters: 5 % is 0.05 percentage points.
    matters = tolerance / 100
    call: Call = "unknown"
    if low > 0 and rise > matters:
        call = "worse"
    elif high < 0 and -rise > matters:
        call = "better"
    elif max(abs(low), abs(high)) <= max(2 * matters, 1e-9):
        call = "same"
    return change.model_copy(update={"low": low, "high": high, "call": call})


def _first_reason(before: Side, after: Side) -> str:
    for which, side in (("the first", before), ("the second", after)):
        if side.reason:
            return f"in {which}, {side.reason}"
    return ""


def _called(ratio: float, low: float, high: float, tolerance: float) -> Call:
    """Return the call for the ratio of a figure of which more is worse."""
    if low > 1 and ratio > 1 + tolerance:
        return "worse"
    if high < 1 and ratio < 1 / (1 + tolerance):
        return "better"
    wide = 1 + 2 * tolerance
    return "same" if low >= 1 / wide and high <= wide else "unknown"


def sentence(comparison: Comparison) -> str:
    """Return the result in words."""
    said = _SAID[comparison.call]
    if comparison.problems:
        return f"not comparable: {'; '.join(comparison.problems)}"
    worse = [change.name for change in comparison.changes if change.call == "worse"]
    if worse:
        return f"{said} in {', '.join(worse)}"
    why = next((f"; {c.name}: {c.reason}" for c in comparison.changes if c.reason), "")
    return f"{said}{why}" if comparison.call == "unknown" else said


def _verdict(comparison: Comparison) -> Verdict:
    tone, text = _TONES.get(comparison.call, "good"), sentence(comparison)
    if not comparison.warnings or comparison.problems:
        return Verdict(tone, text)
    doubt = "; ".join(comparison.warnings)
    return Verdict(
        "doubt" if tone == "good" else tone, f"{text}; with reservations: {doubt}"
    )


def document(comparison: Comparison, before: str, after: str) -> Document:
    """Return the report; `before` and `after` are the names of the files."""
    return Document(
        f"{after} compared with {before}",
        (
            _verdict(comparison),
            Table(
                ("figure", "before", "after", "change", "interval", "verdict"),
                [(c.name, *_cells(c), c.call) for c in comparison.changes],
            ),
            Items([f"{c.name}: {c.reason}" for c in comparison.changes if c.reason]),
            Paragraph(
                f"Changes above {units.percent(comparison.tolerance_ratio)} matter; the chance of a "
                f"false alarm over all figures is {units.percent(comparison.error_rate)}.",
                soft=True,
            ),
        ),
    )


def _cells(change: Change) -> tuple[str, str, str, str]:
    show: Callable[[float | None], str] = units.duration
    moved: Callable[[float | None], str] = _change
    if change.name == "misses":
        show, moved = units.percent, _points
    elif change.name == "capacity":
        show = units.number
    ends = change.low, change.high
    return (
        show(change.before),
        show(change.after),
        moved(change.ratio),
        "unknown" if ends == (None, None) else f"[{moved(ends[0])}, {moved(ends[1])}]",
    )


def _points(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share + 0.0:+.3g} points"


def _change(ratio: float | None) -> str:
    return "unknown" if ratio is None else units.percent(ratio - 1, "+")
