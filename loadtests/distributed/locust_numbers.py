"""Locust's table, UI and files with the microseconds that it rounds away by default.

Locust keeps whole milliseconds below 100 ms and two digits above. Its rounding and the
functions that print integers are replaced.
"""

from __future__ import annotations

from typing import Any

from locust import stats
from locust.stats import PERCENTILES_TO_REPORT

from exporter.histograms.buckets import UPPER, ZERO_THRESHOLD, slot_of


def bucketed(milliseconds: float) -> float:
    """Return the middle of the value's histogram bucket in milliseconds, in four digits.

    Off by at most 1.1 %. The same bucket as in the histogram, so that Locust's percentiles
    are those of it.
    """
    seconds = milliseconds / 1e3
    if seconds <= ZERO_THRESHOLD:
        return 0.0
    slot = slot_of(seconds)
    low, high = float(UPPER[slot - 1]), float(UPPER[slot])
    return float(_number(2e3 * low * high / (low + high)))


def install() -> None:
    """Replace Locust's functions; may be called again."""
    replaced: Any = stats
    replaced.bucket_response_time = bucketed
    replaced.proper_round = _rounded
    replaced.StatsEntry.percentile = _percentile
    replaced.StatsEntry.to_string = _to_string
    replaced.StatsCSV._percentile_fields = _percentile_fields  # noqa: SLF001


def _rounded(value: float, digits: int = 0) -> float:
    return round(value, max(digits, 3))


def _number(milliseconds: float) -> str:
    return f"{milliseconds:.4g}"


def _percentile(entry: Any) -> str:
    if not entry.num_requests:
        raise ValueError("no percentile without requests")
    values = " ".join(
        f"{_number(entry.get_response_time_percentile(p)):>6}"
        for p in PERCENTILES_TO_REPORT
    )
    width, names = stats.STATS_TYPE_WIDTH, stats.STATS_NAME_WIDTH
    return (
        f"{entry.method or '':<{width}} {entry.name:<{names}} {values} "
        f"{entry.num_requests:>6}"
    )


def _to_string(entry: Any, current: bool = True) -> str:  # noqa: FBT001, FBT002 - Locust's
    rate = entry.current_rps if current else entry.total_rps
    failing = entry.current_fail_per_sec if current else entry.total_fail_per_sec
    failed = f"{entry.num_failures}({entry.fail_ratio * 100:.2f}%)"
    width = stats.STATS_TYPE_WIDTH
    names = stats.STATS_NAME_WIDTH - width + 4
    times = (
        entry.avg_response_time,
        entry.min_response_time or 0,
        entry.max_response_time,
        entry.median_response_time or 0,
    )
    average, least, most, middle = (_number(value) for value in times)
    return (
        f"{(entry.method or '') + ' ' if entry.method else '':<{width}} "
        f"{entry.name:<{names}} {entry.num_requests:>7} {failed:>12} |"
        f"{average:>7} {least:>7} {most:>7}{middle:>7} | "
        f"{rate or 0:>7.2f} {failing or 0:>11.2f}"
    )


def _percentile_fields(
    writer: Any,
    entry: Any,
    use_current: bool = False,  # noqa: FBT001, FBT002 - Locust's
) -> list[Any]:
    if not entry.num_requests:
        return list(writer.percentiles_na)
    ask = (
        entry.get_current_response_time_percentile
        if use_current
        else entry.get_response_time_percentile
    )
    return [round(ask(p) or 0, 3) for p in writer.percentiles_to_report]
