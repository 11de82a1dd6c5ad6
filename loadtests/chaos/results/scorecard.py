"""The scorecard: a row for each experiment that was run."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final, Literal

from exporter.settings import Settings
from loadtests import json_file
from loadtests.chaos.measuring.findings import Verdict
from loadtests.chaos.results import journal_file
from loadtests.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loadtests.chaos.measuring.findings import FaultFindings, Findings
    from loadtests.chaos.results.journal_file import Journal

FORMAT: Final = "tritonwatch-chaos-scorecard"
VERSION: Final = 3
MAX_JOURNALS: Final = 200
_VERDICTS: Final[tuple[Verdict, ...]] = ("held", "invalid", "finding", "failed")
"""Verdicts from best to worst: what is known is not hidden by what was not decided."""
MEASURES: Final = {
    "availability_ratio": "available",
    "p95_seconds": "p95",
    "outage_seconds": "outage",
    "restarted_seconds": "server ready after",
    "recovered_seconds": "recovered after",
    "metric_seconds": "metric after",
    "alert_seconds": "alert after",
}
"""The numbers of a row, and their titles. Service is that during the fault; times count
from the injection of the last one, those of metrics and alerts for signals that had to show it."""


class Row(Settings):
    """One experiment: all its repetitions."""

    title: str
    started_at: float
    """Unix time of the first repetition's load."""
    verdict: Verdict
    """The worst of its repetitions."""
    repetitions: int
    recovered: int
    """Repetitions in which users were served again, or were not affected."""
    lost: int | None
    """Requests of all repetitions; null where nothing was sent."""
    wrong: int | None
    left: int
    """Remains of faults, over all repetitions."""
    reasons: tuple[str, ...]
    numbers: dict[str, float]
    """Medians by name, over the repetitions in which a number is known; one that is
    unknown in every repetition is left out."""


class Scorecard(Settings):
    """Every experiment of one deployment."""

    format: Literal["tritonwatch-chaos-scorecard"] = FORMAT
    version: Literal[3] = VERSION
    versions: dict[str, tuple[str, ...]]
    """All versions of the deployment in the results."""
    held: int
    """Rows with nothing against them."""
    rows: tuple[Row, ...]


def scorecard(found: Sequence[Journal]) -> Scorecard:
    """Return the card of these journals, by title and then by time.

    Raises:
        PlanError: there are no journals.
    """
    if not found:
        raise PlanError("found no journal; want files written by `chaos run --json`")
    rows = [_row(journal) for journal in found]
    versions: dict[str, set[str]] = {}
    for journal in found:
        for one in journal.repetitions:
            for part, version in one.versions.items():
                versions.setdefault(part, set()).add(version)
    return Scorecard(
        versions={
            part: tuple(sorted(known)) for part, known in sorted(versions.items())
        },
        held=sum(row.verdict == "held" for row in rows),
        rows=tuple(sorted(rows, key=lambda row: (row.title, row.started_at))),
    )


def journals(path: Path) -> list[Journal]:
    """Return the journals of a folder, or the one that a file is.

    Raises:
        PlanError: a file is no journal, or there are too many.
    """
    if not path.is_dir():
        return [journal_file.read(path)]
    files = sorted(file for file in path.glob("*.json") if file.is_file())
    if len(files) > MAX_JOURNALS:
        raise PlanError(
            f"found {len(files)} files; the maximum is {MAX_JOURNALS}", str(path)
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
        raise PlanError(
            "contains no journal; want files written by `chaos run --json`", str(path)
        )
    return found


def _row(journal: Journal) -> Row:
    found = [one.findings for one in journal.repetitions]
    verdicts: list[Verdict] = [one.verdict for one in found]
    each = [_numbers(one) for one in found]
    known = {
        name: [numbers[name] for numbers in each if name in numbers]
        for name in MEASURES
    }
    return Row(
        title=journal.title,
        started_at=journal.repetitions[0].started_at,
        verdict=max(verdicts, key=_VERDICTS.index),
        repetitions=len(found),
        recovered=sum(map(_is_well, found)),
        lost=_sum([one.lost for one in found]),
        wrong=_sum([one.wrong for one in found]),
        left=sum(len(one.leftovers) for one in journal.repetitions),
        reasons=tuple(dict.fromkeys(r for one in found for r in one.reasons)),
        numbers={
            name: statistics.median(values) for name, values in known.items() if values
        },
    )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _is_well(one: Findings) -> bool:
    states = [fault.recovery.state for fault in one.faults if fault.recovery]
    return bool(states) and all(s in {"recovered", "unaffected"} for s in states)


def _numbers(one: Findings) -> dict[str, float]:
    """Return the numbers of a repetition that are known."""
    found: dict[str, float | None] = {}
    if one.during is not None:
        found["availability_ratio"] = one.during.availability
        found["p95_seconds"] = one.during.p95
    if one.faults:
        found |= _times(one.faults[-1])
    return {name: value for name, value in found.items() if value is not None}


def _times(fault: FaultFindings) -> dict[str, float | None]:
    recovery, start = fault.recovery, fault.span.inject_seconds
    if recovery is None:
        return {}
    first: dict[str, float | None] = {
        kind: min(
            (
                s.shown_seconds
                for s in fault.signals
                if s.kind == kind and s.within_seconds and s.shown_seconds
            ),
            default=None,
        )
        for kind in ("metric", "alert")
    }
    instants = {
        "restarted_seconds": fault.span.restarted_seconds,
        "recovered_seconds": recovery.recovered_seconds,
        "metric_seconds": first["metric"],
        "alert_seconds": first["alert"],
    }
    found = {name: at - start for name, at in instants.items() if at is not None}
    # One that has not ended has no length.
    if recovery.outage is not None and recovery.outage.ended:
        found["outage_seconds"] = recovery.outage.seconds
    return dict(found)
