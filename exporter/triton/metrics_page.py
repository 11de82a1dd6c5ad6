"""Reads series of Triton's metrics page, which backends write to as well.

Models register metrics of their own there, with any name, value and description: the page
is untrusted. It is read line by line, so that a line that cannot be read costs nothing but
itself.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_LINE_BYTES: Final = 2048
MAX_VALUE: Final = 2.0**60
"""No count, time or size of a server is as large."""

_SERIES: Final = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*+)(?:\{(.*)\})?"
    r"[ \t]++([^\s_]++)(?:[ \t]++-?[0-9]++)?[ \t]*+",
    re.DOTALL,
)
_LABEL: Final = re.compile(
    r'[ ,]*([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"', re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class PageSeries(NamedTuple):
    """One line. All values are finite."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(slots=True)
class MetricsPage:
    """The series that were looked for, and how many were refused, by reason."""

    series: list[PageSeries] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


def lines_of(names: Iterable[str]) -> re.Pattern[bytes]:
    """Return a pattern that finds all lines of series with these names."""
    joined = b"|".join(re.escape(name.encode()) for name in sorted(names))
    return re.compile(rb"^(?:%b)[ {][^\n]*" % joined, re.MULTILINE)


def read_page(
    body: bytes, wanted: re.Pattern[bytes], *, most_series: int
) -> MetricsPage:
    """Read the lines that match `wanted`; a page of others costs next to nothing."""
    page = MetricsPage()
    seen: set[tuple[str, str]] = set()
    for place, match in enumerate(wanted.finditer(body)):
        if place >= most_series:
            page.refused["too_many"] += 1
        elif match.end() - match.start() > MAX_LINE_BYTES:
            page.refused["too_long"] += 1
        else:
            try:
                page.series.append(_series(match[0], seen))
            except UnicodeDecodeError:
                page.refused["malformed"] += 1
            except _RefusedError as refused:
                page.refused[str(refused)] += 1
    return page


class _RefusedError(Exception):
    """A line is not used; its text is the reason."""


def _series(line: bytes, seen: set[tuple[str, str]]) -> PageSeries:
    found = _SERIES.fullmatch(line.decode("utf-8"))
    if found is None:
        raise _RefusedError("malformed")
    name, inner, number = found.groups()
    try:
        value = float(number)
    except ValueError:
        raise _RefusedError("malformed") from None
    if not abs(value) <= MAX_VALUE:
        raise _RefusedError("value")
    if (name, inner) in seen:
        raise _RefusedError("duplicate")
    seen.add((name, inner))
    return PageSeries(name, _labels(inner or ""), value)


def _labels(inner: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    end = 0
    while end < len(inner):
        label = _LABEL.match(inner, end)
        if label is None or label[1] in labels:
            if label is not None or inner[end:].strip(" ,"):
                raise _RefusedError("malformed")
            break
        value = label[2]
        if "\\" in value:
            value = _ESCAPE.sub(lambda e: "\n" if e[1] == "n" else e[1], value)
        labels[label[1]] = value
        end = label.end()
    return labels
