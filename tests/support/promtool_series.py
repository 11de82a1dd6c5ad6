"""promtool's unit tests of rules, rewritten: the same world with counters that start over."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

import yaml

from exporter.catalogue import CATALOGUE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

COUNTERS = {spec.name for spec in CATALOGUE if spec.kind == "counter"} | {
    spec.name + suffix
    for spec in CATALOGUE
    if spec.kind == "histogram"
    for suffix in ("_bucket", "_sum", "_count")
}
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
SAMPLES_BEFORE = 2
"""So many samples before each look a counter starts over: within every window."""
_ITEM = re.compile(
    r"(?P<first>-?[\d.]+)(?P<step>[+-][\d.]+)?(?:x(?P<times>\d+))?|_(?:x(?P<gap>\d+))?"
)

Value = float | None


def read(file: Path) -> dict[str, Any]:
    """A file of promtool's tests. Its `values` are text to promtool: 0x40, 41 zeros."""
    text = file.read_text("utf-8")
    found = yaml.safe_load(text)
    as_text = yaml.load(text, yaml.BaseLoader)  # noqa: S506 - it makes text and no objects
    for test, written in zip(found["tests"], as_text["tests"], strict=True):
        for series, its in zip(
            test["input_series"], written["input_series"], strict=True
        ):
            series["values"] = its["values"]
    return found


def seconds(duration: str) -> float:
    """Of a Prometheus duration such as 27h20m."""
    parts = re.findall(r"(\d+)(ms|s|m|h|d)", duration)
    assert "".join(number + unit for number, unit in parts) == duration, duration
    return sum(int(number) * SECONDS[unit] for number, unit in parts)


def expanded(values: str) -> list[Value]:
    """The samples of promtool's notation; None where there is none."""
    return [value for item in values.split() for value in _of(item)]


def _of(item: str) -> Iterator[Value]:
    found = _ITEM.fullmatch(item)
    assert found, f"{item} is no notation that is known here"
    if found["first"] is None:
        yield from [None] * int(found["gap"] or 1)
        return
    for place in range(int(found["times"] or 0) + 1):
        yield float(found["first"]) + place * float(found["step"] or 0)


def started_over(values: Sequence[Value], after: Sequence[int]) -> list[Value]:
    """The same rises, from 0 again after each of these samples."""
    result, base = [], 0.0
    for place, value in enumerate(values):
        result.append(None if value is None else value - base)
        if place in after and value is not None:
            base = value
    return result


def is_counter(series: str) -> bool:
    return series.split("{", maxsplit=1)[0] in COUNTERS


def with_resets(test: dict[str, Any]) -> dict[str, Any]:
    """One of a file's `tests`, in which every counter starts over before every look."""
    interval = seconds(str(test["interval"]))
    looks = [*test.get("promql_expr_test", ()), *test.get("alert_rule_test", ())]
    after = [
        int(seconds(str(look["eval_time"])) // interval) - SAMPLES_BEFORE
        for look in looks
    ]
    changed = copy.deepcopy(test)
    for given in changed["input_series"]:
        if is_counter(given["series"]):
            values = started_over(expanded(given["values"]), after)
            given["values"] = " ".join(
                "_" if value is None else f"{value:.10g}" for value in values
            )
    return changed
