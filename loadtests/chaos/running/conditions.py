"""Comparisons of the sidecar's metrics with numbers: a subset of PromQL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CONDITION: Final = re.compile(
    r"\s*(?:(?P<function>increase)\s*\(\s*)?"
    r"(?P<metric>[a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(?P<labels>[^}]*)\})?"
    r"\s*(?P<close>\))?\s*(?P<operator>==|!=|<=|>=|<|>)\s*(?P<value>[-+.0-9eE]+)\s*"
)
_MATCHER: Final = re.compile(
    r'\s*(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)\s*(?P<operator>=~|!~|!=|=)\s*"(?P<value>[^"]*)"\s*'
)
_WANTED: Final = (
    "want one like 'triton_probe_success{model=\"m\"} == 0' or "
    "'increase(triton_probe_total{outcome=\"error\"}) > 0'"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of one metric's series with a number, a subset of PromQL.

    `increase(...)` is what a counter has grown by since the fault was injected.
    """

    text: str
    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    operator: str
    value: float
    increase: bool

    @classmethod
    def parse(cls, text: str) -> Condition:
        """The condition that is written so.

        Raises:
            ValueError: it is none.
        """
        found = _CONDITION.fullmatch(text)
        if found is None or bool(found["function"]) != bool(found["close"]):
            raise ValueError(f"found {text!r}; {_WANTED}")
        try:
            value = float(found["value"])
        except ValueError:
            raise ValueError(f"found {text!r}; {_WANTED}") from None
        return cls(
            text=text.strip(),
            metric=found["metric"],
            matchers=tuple(_matchers(found["labels"] or "", text)),
            operator=found["operator"],
            value=value,
            increase=bool(found["function"]),
        )

    def matches(self, metric: str, labels: Mapping[str, str]) -> bool:
        """Return whether it is about that series."""
        return metric == self.metric and all(
            _fits(labels.get(name, ""), operator, value)
            for name, operator, value in self.matchers
        )

    def holds(self, value: float) -> bool:
        """Return whether a value fulfils it; NaN fulfils none."""
        if value != value:  # noqa: PLR0124 - NaN
            return False
        return {
            "==": value == self.value,
            "!=": value != self.value,
            "<": value < self.value,
            "<=": value <= self.value,
            ">": value > self.value,
            ">=": value >= self.value,
        }[self.operator]


def _matchers(labels: str, text: str) -> Iterator[tuple[str, str, str]]:
    at = 0
    while labels[at:].strip(" ,"):
        found = _MATCHER.match(labels, at)
        if found is None or labels[found.end() : found.end() + 1] not in {"", ","}:
            raise ValueError(f"found {text!r}; {_WANTED}")
        if found["operator"] in {"=~", "!~"}:
            try:
                re.compile(found["value"])
            except re.error as error:
                raise ValueError(f"found {text!r}: {error}") from None
        yield found["name"], found["operator"], found["value"]
        at = found.end() + 1


def _fits(found: str, operator: str, wanted: str) -> bool:
    if operator in {"=", "!="}:
        return (found == wanted) == (operator == "=")
    return (re.fullmatch(wanted, found) is not None) == (operator == "=~")
