"""Findings with their evidence, ordered by severity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_args

from exporter.commands.audit.finding_kinds import KINDS, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from exporter.access.inventory import ModelKey

SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
"""Severities, most severe first. `unknown` needs a person's judgement."""
FAILING: Final = frozenset({"critical", "warning"})
"""Severities that make the command exit with 1."""

_LONGEST_NAME: Final = 48
_LONGEST_TEXT: Final = 300


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


def many(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


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


def found(
    kind: str,
    *evidence: tuple[Any, ...],
    key: ModelKey | None = None,
    severity: Severity | None = None,
    advice: str | None = None,
    reference: str | None = None,
    **fields: object,
) -> Finding:
    """Return a finding of a kind of `KINDS`, whose texts are filled with the fields.

    Evidence is the arguments of `measure`. With `key` it is about one model version.
    """
    texts = KINDS[kind]
    model, version = key or ("", "")
    if key is not None:
        fields["key"] = shown_key(key)
    return Finding(
        kind,
        severity or texts.severity,
        texts.title.format(**fields),
        (texts.advice if advice is None else advice).format(**fields),
        tuple(measure(*item) for item in evidence),
        texts.reference if reference is None else reference,
        model,
        version,
    )


def most_severe_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort by severity; stable, so that related findings stay together."""
    return tuple(sorted(findings, key=lambda f: SEVERITIES.index(f.severity)))
