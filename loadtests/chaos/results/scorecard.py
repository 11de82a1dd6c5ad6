"""The scorecard: a row for each experiment, and for each strength of it; two cards compared."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from exporter.histograms.quantiles import interval_ranks
from exporter.settings import Settings
from loadtests import json_file
from loadtests.chaos.measuring.findings import Verdict
from loadtests.chaos.results import journal_file
from loadtests.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from loadtests.chaos.measuring.findings import FaultFindings, Findings
    from loadtests.chaos.results.journal_file import Journal, Judged

FORMAT: Final = "tritonwatch-chaos-scorecard"
VERSION: Final = 2
MAX_JOURNALS: Final = 200
_VERDICTS: Final[tuple[Verdict, ...]] = ("held", "finding", "failed", "invalid")
"""Verdicts from best to worst; inconclusive ones are worse than a known weakness."""
_LEAST_VALUES: Final = 3
"""Values of which a range says something about the next one."""


class Measure(NamedTuple):
    """A number of a repetition: what it is called, and what is a change of it."""

    title: str
    matters: tuple[float, float] | None = None
    """Smaller changes than this ratio or this absolute value are none. None: it is shown
    and not compared."""
    more_is_better: bool = False


# Repetitions of the same differ by a fifth of a second.
_TIMES: Final = (0.1, 0.2)
MEASURES: Final = {
    "availability_ratio": Measure("available", (0.0, 0.005), more_is_better=True),
    "p95_seconds": Measure("p95"),
    "outage_seconds": Measure("outage", _TIMES),
    "restarted_seconds": Measure("server ready after"),
    "recovered_seconds": Measure("recovered after", _TIMES),
    "metric_seconds": Measure("metric after", _TIMES),
    "alert_seconds": Measure("alert after", _TIMES),
}
"""The numbers of a row. Service is that during the fault; times count from the injection
of the last one."""

Call = Literal["better", "worse", "same", "unknown"]


class Repeated(Settings):
    """One number over all repetitions in which it is known."""

    known: int
    """Number of repetitions with a value."""
    median: float
    low: float
    """End of the 95 % interval of the median, distribution-free; below six values, where
    there is none, of the range."""
    high: float


class Row(Settings):
    """One experiment, or one strength of it: all its repetitions."""

    title: str
    strength: float | None
    verdict: Verdict
    """The worst of its repetitions."""
    repetitions: int
    recovered: int
    """Repetitions in which users were served again, or were not affected."""
    lost: int | None
    """Requests of all repetitions; null where nothing was sent."""
    wrong: int | None
    sidecar_kept: bool | None
    """True if the sidecar kept every guarantee that could be evaluated."""
    left: int
    """Remains of faults, over all repetitions."""
    reasons: tuple[str, ...]
    numbers: dict[str, Repeated]
    """Values by name; one that is unknown in every repetition is left out."""

    @property
    def key(self) -> tuple[str, float | None]:
        """The identity of the row on another card."""
        return self.title, self.strength

    @property
    def name(self) -> str:
        """The experiment, and its strength where it has several."""
        return strength_name(self.title, self.strength)


class Scorecard(Settings):
    """Every experiment of one deployment."""

    format: Literal["tritonwatch-chaos-scorecard"] = FORMAT
    version: Literal[2] = VERSION
    versions: dict[str, tuple[str, ...]]
    """All versions of the deployment in the results."""
    held: int
    """Rows with nothing against them."""
    rows: tuple[Row, ...]


class Change(NamedTuple):
    """A verdict or a number of one row, on two cards. None is not there."""

    row: str
    measure: str | None
    """Name of the number; None for the verdict."""
    before: Verdict | Repeated | None
    after: Verdict | Repeated | None
    call: Call


def strength_name(title: str, strength: float | None) -> str:
    """Return the name of an experiment, or of one strength of it."""
    return title if strength is None else f"{title} at {strength:g}"


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
        for one in journal.repetitions:
            for part, version in one.versions.items():
                versions.setdefault(part, set()).add(version)
    return Scorecard(
        versions={
            part: tuple(sorted(known)) for part, known in sorted(versions.items())
        },
        held=sum(row.verdict == "held" for row in rows),
        rows=tuple(sorted(rows, key=lambda row: row.title)),
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
    json_file.require_version(document, VERSION, str(path))
    return json_file.validated(Scorecard, document, str(path))


def compared(before: Scorecard, after: Scorecard) -> list[Change]:
    """Return what can be compared of two cards, row by row."""
    old = {row.key: row for row in before.rows}
    new = {row.key: row for row in after.rows}
    return [
        change
        for key in {**old, **new}
        for change in _changes(strength_name(*key), old.get(key), new.get(key))
    ]


def call_of(changes: Sequence[Change]) -> Call:
    """Return `worse` if anything is, and `unknown` if a verdict cannot be compared."""
    calls = {
        change.call
        for change in changes
        if change.measure is None or change.call in {"better", "worse"}
    }
    order: tuple[Call, ...] = ("worse", "unknown", "better")
    for call in order:
        if call in calls:
            return call
    return "same"


def repeated(values: Sequence[float | None]) -> Repeated | None:
    """Return the median and its order-statistic interval (Conover 1999, section 3.2).

    Interpolated between ranks (Hutson 1999), as a quantile of latency has it. Missing
    values are left out; None where nothing is known.
    """
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    ranks = interval_ranks(len(known), 0.5)
    ends = [known[0], known[-1]]
    if ranks is not None:
        ends = np.interp(ranks, np.arange(1, len(known) + 1), known).tolist()
    return Repeated(
        known=len(known), median=statistics.median(known), low=ends[0], high=ends[1]
    )


def _rows(journal: Journal) -> Iterator[Row]:
    """Yield a row for each strength, in the order in which they were run."""
    groups: dict[float | None, list[Judged]] = {}
    for one in journal.repetitions:
        groups.setdefault(one.strength, []).append(one)
    for strength, judged in groups.items():
        found = [one.findings for one in judged]
        verdicts: list[Verdict] = [one.verdict for one in found]
        kept = [one.sidecar for one in found if one.sidecar is not None]
        each = [_numbers(one) for one in found]
        numbers = {name: repeated([one.get(name) for one in each]) for name in MEASURES}
        yield Row(
            title=journal.title,
            strength=strength,
            verdict=max(verdicts, key=_VERDICTS.index),
            repetitions=len(found),
            recovered=sum(map(_is_well, found)),
            lost=_sum([one.lost for one in found]),
            wrong=_sum([one.wrong for one in found]),
            sidecar_kept=all(not one.broken for one in kept) if kept else None,
            left=sum(len(one.leftovers) for one in judged),
            reasons=tuple(dict.fromkeys(r for one in found for r in one.reasons)),
            numbers={name: one for name, one in numbers.items() if one is not None},
        )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _is_well(one: Findings) -> bool:
    states = [fault.recovery.state for fault in one.faults if fault.recovery]
    return bool(states) and all(s in {"recovered", "unaffected"} for s in states)


def _numbers(one: Findings) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    if one.during is not None:
        found["availability_ratio"] = one.during.availability
        found["p95_seconds"] = one.during.p95
    return found | (_times(one.faults[-1]) if one.faults else {})


def _times(fault: FaultFindings) -> dict[str, float | None]:
    recovery, start = fault.recovery, fault.span.inject_seconds
    if recovery is None:
        return {}
    first: dict[str, float | None] = {
        kind: min(
            (
                s.shown_seconds
                for s in fault.signals
                if s.kind == kind and s.shown_seconds
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


def _changes(name: str, before: Row | None, after: Row | None) -> Iterator[Change]:
    if before is None or after is None:
        yield Change(
            row=name,
            measure=None,
            before=None if before is None else before.verdict,
            after=None if after is None else after.verdict,
            call="unknown",
        )
        return
    call = _of_verdicts(before.verdict, after.verdict)
    yield Change(name, None, before.verdict, after.verdict, call)
    for key, measure in MEASURES.items():
        numbers = before.numbers.get(key), after.numbers.get(key)
        if measure.matters is not None and any(numbers):
            yield Change(name, key, *numbers, _call(measure, *numbers))


def _of_verdicts(before: Verdict, after: Verdict) -> Call:
    if "invalid" in {before, after} or "failed" in {before, after}:
        return "unknown"
    if before == after:
        return "same"
    return "better" if after == "held" else "worse"


def _call(measure: Measure, before: Repeated | None, after: Repeated | None) -> Call:
    """Return a change only for disjoint intervals, of a relevant difference.

    Medians of fewer than six repetitions have no interval: nothing is said then but of
    ranges that lie apart, from three on.
    """
    if before is None or after is None or measure.matters is None:
        return "unknown"
    if min(before.known, after.known) < _LEAST_VALUES:
        return "unknown"
    ratio, absolute = measure.matters
    matters = max(ratio * abs(before.median), absolute)
    if abs(after.median - before.median) <= matters:
        return "same"
    if before.low <= after.high and after.low <= before.high:
        return "same"
    more = after.median > before.median
    return "better" if more == measure.more_is_better else "worse"
