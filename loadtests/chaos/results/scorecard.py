"""All experiments of one deployment on one card, and two cards compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from exporter.settings import Settings
from loadtests import json_file
from loadtests.chaos.measuring.findings import Verdict
from loadtests.chaos.results import journal_file
from loadtests.chaos.results.repetitions import (
    Repeated,
    Repetitions,
    by_strength,
    repetitions,
)
from loadtests.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from loadtests.chaos.results.journal_file import Journal

FORMAT: Final = "tritonwatch-chaos-scorecard"
VERSION: Final = 1
MAX_JOURNALS: Final = 200
_VERDICTS: Final[tuple[Verdict, ...]] = ("held", "finding", "failed", "invalid")
"""Verdicts from best to worst; inconclusive ones are worse than a known weakness."""


_MATTERS: Final = {
    "availability_ratio": (0.0, 0.005),
    # Repetitions of the same differ by a fifth of a second.
    "outage_seconds": (0.1, 0.2),
    "recovered_seconds": (0.1, 0.2),
    "metric_seconds": (0.1, 0.2),
    "alert_seconds": (0.1, 0.2),
    "budget_burnt_ratio": (0.1, 0.0),
}
"""The numbers that are compared: smaller changes, as a ratio and absolute, are none."""
_MORE_IS_BETTER: Final = frozenset({"availability_ratio"})

Call = Literal["better", "worse", "same", "unknown"]


class Row(Settings):
    """One experiment, or one strength of it."""

    title: str
    strength: float | None
    verdict: Verdict
    """The worst of its repetitions."""
    deviated: bool
    lost: int | None
    """Requests of all repetitions; null where nothing was sent."""
    wrong: int | None
    sidecar_kept: bool | None
    """True if the sidecar kept every guarantee that could be evaluated."""
    left: int
    """Remains of faults, over all repetitions."""
    reasons: tuple[str, ...]
    repeated: Repetitions

    @property
    def key(self) -> tuple[str, float | None]:
        """The identity of the row on another card."""
        return self.title, self.strength


class Scorecard(Settings):
    """Every experiment of one deployment."""

    format: Literal["tritonwatch-chaos-scorecard"] = FORMAT
    version: Literal[1] = VERSION
    versions: dict[str, tuple[str, ...]]
    """All versions of the deployment in the results."""
    held: int
    """Rows with nothing against them."""
    rows: tuple[Row, ...]


class Change(Settings):
    """One number of one row, on two cards."""

    number: str
    before: Repeated | None
    after: Repeated | None
    call: Call


class RowChange(Settings):
    """One experiment on two cards."""

    title: str
    strength: float | None
    before: Verdict | None
    """Null where the card does not have it."""
    after: Verdict | None
    call: Call
    changes: tuple[Change, ...]


class ScorecardChange(Settings):
    """Two cards."""

    call: Call
    """`worse` if a row is; `unknown` if none is and one cannot be evaluated."""
    rows: tuple[RowChange, ...]


def scorecard(found: Sequence[Journal]) -> Scorecard:
    """Return the card of these journals.

    Raises:
        PlanError: there is none, or the same experiment is in two of them.
    """
    if not found:
        raise PlanError("found no journal; want those that `chaos run --json` wrote")
    rows = [row for journal in found for row in _rows(journal)]
    seen: set[tuple[str, float | None]] = set()
    for row in rows:
        if row.key in seen:
            raise PlanError(
                f"found {row.title!r} twice; a card has every experiment once, with "
                "its repetitions in one journal"
            )
        seen.add(row.key)
    versions: dict[str, set[str]] = {}
    for journal in found:
        for one in journal.findings:
            for part, version in one.versions.items():
                versions.setdefault(part, set()).add(version)
    rows.sort(key=lambda row: (row.title, row.strength or 0.0))
    return Scorecard(
        versions={
            part: tuple(sorted(known)) for part, known in sorted(versions.items())
        },
        held=sum(row.verdict == "held" for row in rows),
        rows=tuple(rows),
    )


def journals(path: Path) -> list[Journal]:
    """Return the journals of a folder, or the one that a file is.

    Raises:
        PlanError: a file is none, or there are too many.
    """
    if not path.is_dir():
        return [journal_file.read(path)]
    files = sorted(file for file in path.glob("*.json") if file.is_file())
    if len(files) > MAX_JOURNALS:
        raise PlanError(
            f"found {len(files)} files; at most {MAX_JOURNALS} are read", str(path)
        )
    # Other results may lie beside them.
    found = [
        journal_file.from_document(document, str(file))
        for file in files
        if journal_file.is_journal(
            document := json_file.read(file, journal_file.MAX_FILE_BYTES)
        )
    ]
    if not found:
        raise PlanError("holds no journal; want those of `chaos run --json`", str(path))
    return found


def read(path: Path) -> Scorecard:
    """Return the card of a folder's journals, of one journal, or as `--json` wrote it.

    Raises:
        PlanError: there is nothing of the kind.
    """
    document = (
        None if path.is_dir() else json_file.read(path, journal_file.MAX_FILE_BYTES)
    )
    if document is None or journal_file.is_journal(document):
        return scorecard(journals(path))
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise PlanError(
            "is neither a journal nor a scorecard; want what `chaos run --json` or "
            "`chaos report --json` wrote",
            str(path),
        )
    return json_file.validated(Scorecard, document, str(path))


def compared(before: Scorecard, after: Scorecard) -> ScorecardChange:
    """Return the changes from one scorecard to the next."""
    old = {row.key: row for row in before.rows}
    new = {row.key: row for row in after.rows}
    rows = tuple(_row_change(key, old.get(key), new.get(key)) for key in {**old, **new})
    return ScorecardChange(call=_together([row.call for row in rows]), rows=rows)


def _rows(journal: Journal) -> Iterator[Row]:
    for strength, found in by_strength(journal.findings).items():
        verdicts: list[Verdict] = [one.verdict for one in found]
        kept = [one.sidecar for one in found if one.sidecar is not None]
        yield Row(
            title=journal.title,
            strength=strength,
            verdict=max(verdicts, key=_VERDICTS.index),
            deviated=any(one.deviated for one in found),
            lost=_sum([one.lost for one in found]),
            wrong=_sum([one.wrong for one in found]),
            sidecar_kept=all(not one.broken for one in kept) if kept else None,
            left=sum(len(one.leftovers) for one in found),
            reasons=tuple(dict.fromkeys(r for one in found for r in one.reasons)),
            repeated=repetitions(found),
        )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _row_change(
    key: tuple[str, float | None], before: Row | None, after: Row | None
) -> RowChange:
    changes: tuple[Change, ...] = ()
    call: Call = "unknown"
    if before is not None and after is not None:
        old, new = before.repeated.numbers, after.repeated.numbers
        changes = tuple(
            _change(name, old.get(name), new.get(name))
            for name in _MATTERS
            if name in old or name in new
        )
        certain: list[Call] = [c.call for c in changes if c.call in {"better", "worse"}]
        call = _together([_of_verdicts(before.verdict, after.verdict), *certain])
    return RowChange(
        title=key[0],
        strength=key[1],
        before=None if before is None else before.verdict,
        after=None if after is None else after.verdict,
        call=call,
        changes=changes,
    )


def _change(name: str, before: Repeated | None, after: Repeated | None) -> Change:
    return Change(
        number=name, before=before, after=after, call=_call(name, before, after)
    )


def _of_verdicts(before: Verdict, after: Verdict) -> Call:
    if "invalid" in {before, after} or "failed" in {before, after}:
        return "unknown"
    if before == after:
        return "same"
    return "better" if after == "held" else "worse"


def _call(name: str, before: Repeated | None, after: Repeated | None) -> Call:
    """Return a change only for disjoint intervals, of a relevant difference.

    Medians of fewer than six repetitions have no interval: nothing is said then but of
    ranges that lie apart, from three on.
    """
    if before is None or after is None:
        return "unknown"
    old, new = _ends(before), _ends(after)
    if old is None or new is None:
        return "unknown"
    ratio, least = _MATTERS[name]
    matters = max(ratio * abs(before.median), least)
    if abs(after.median - before.median) <= matters:
        return "same"
    if old[0] <= new[1] and new[0] <= old[1]:
        return "same"
    more = after.median > before.median
    return "better" if more == (name in _MORE_IS_BETTER) else "worse"


def _ends(number: Repeated) -> tuple[float, float] | None:
    if number.low is not None and number.high is not None:
        return number.low, number.high
    enough = 3
    return (number.least, number.most) if number.known >= enough else None


def _together(calls: Sequence[Call]) -> Call:
    for call in ("worse", "unknown", "better"):
        if call in calls:
            return call
    return "same"
