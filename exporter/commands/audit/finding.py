"""Findings with their evidence, and the rows of data that they are made from."""

from __future__ import annotations

import math
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Literal, Protocol, TypeVar, get_args

from pages.units import duration, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from exporter.access.inventory import ModelKey

Severity = Literal["critical", "warning", "unknown", "info", "ok"]
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
"""Severities, most severe first. `unknown` needs a person's judgement."""
FAILING: Final = frozenset({"critical", "warning"})
"""Severities that make the command exit with 1."""

_LONGEST_NAME: Final = 48
_LONGEST_TEXT: Final = 300


class _Titles(string.Formatter):
    """Formats `{share!p}` in percent, and `{seconds!d}` as a duration."""

    def convert_field(self, value: object, conversion: object) -> object:
        if conversion in {"p", "d"} and isinstance(value, float):
            return percent(value) if conversion == "p" else duration(value)
        return value


@dataclass(frozen=True, slots=True)
class Measure:
    """One number or word of evidence and where it was read; value None is unknown."""

    name: str
    value: int | float | str | None
    unit: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement about the server or, with `model`, about one model version.

    `id` is in kebab-case and stable: what to filter on. `reference` is an issue such as
    "server#8125" (github.com/triton-inference-server/server) or a document.
    """

    id: str
    severity: Severity
    title: str
    advice: str = ""
    evidence: tuple[Measure, ...] = ()
    reference: str = ""
    model: str = ""
    version: str = ""


class Judged(Protocol):
    """The subject of a check."""

    @property
    def key(self) -> ModelKey:
        """The model version; empty names for the server as a whole."""
        ...


Subject = TypeVar("Subject", bound=Judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[Subject]):
    """One possible finding, as a row of data.

    A number that could not be read is NaN: no comparison with it holds, so that nothing is
    claimed of it.
    """

    id: str
    severity: Severity | Callable[[Subject], Severity]
    holds: Callable[[Subject], bool]
    """The condition under which there is something to say."""
    title: str
    """One sentence; `{key}` is the model version, `{it.…}` an attribute of the subject."""
    evidence: Callable[[Subject], Iterable[Measure]] = lambda _: ()
    advice: str = ""
    advice_elsewhere: str | None = None
    """Advice for a server that is not Triton; None where it is the same."""
    triton_only: bool = False
    """True where it is about a part of Triton that no other server has."""
    reference: str = ""
    """Left out for a server that is not Triton: all are about Triton."""

    def findings(
        self, subjects: Iterable[Subject], *, is_triton: bool
    ) -> Iterator[Finding]:
        """A finding for each subject of which the condition holds."""
        if self.triton_only and not is_triton:
            return
        advice = self.advice
        if not is_triton and self.advice_elsewhere is not None:
            advice = self.advice_elsewhere
        for it in subjects:
            if self.holds(it):
                severity = self.severity
                yield Finding(
                    self.id,
                    severity(it) if callable(severity) else severity,
                    cut(_Titles().format(self.title, it=it, key=shown_key(it.key))),
                    advice,
                    tuple(self.evidence(it)),
                    self.reference if is_triton else "",
                    *it.key,
                )


def measure(
    name: str, value: float | str | None, unit: str = "", source: str = ""
) -> Measure:
    """Return a measure; values not finite are unknown, and long words are cut."""
    if isinstance(value, str):
        value = cut(value)
    elif value is not None and not math.isfinite(value):
        value = None
    return Measure(name, value, unit, source)


def shown(name: str) -> str:
    """A name from outside, fit for one line: control characters escaped, cut."""
    return cut(name, _LONGEST_NAME)


def shown_key(key: ModelKey) -> str:
    """A model version, for people."""
    return f"{shown(key[0])} v{shown(key[1])}"


def cut(text: str, longest: int = _LONGEST_TEXT) -> str:
    """The beginning of a text from outside on one line, with a mark where it was cut."""
    head = text[: longest + 1]
    printable = "".join(
        c if c.isprintable() else " " if c.isspace() else f"\\u{ord(c):04x}"
        for c in head
    )
    if len(printable) > longest:
        return printable[: longest - 1] + "…"
    return printable
