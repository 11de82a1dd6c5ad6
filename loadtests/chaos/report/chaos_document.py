"""The report of experiments, for people: one table over all, and each repetition.

A row of the table is an experiment, or one strength of its fault. With a single journal its
repetitions follow, each with its course over time.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pydantic import ValidationError

from loadtests.chaos.measuring.findings import extension_of
from loadtests.chaos.report.repetition_report import (
    outcome,
    repetition,
    repetition_name,
    strength_name,
)
from loadtests.chaos.results.repetitions import (
    TITLES,
    by_strength,
    repeated,
    repetitions,
)
from loadtests.chaos.running.users import LoadSettings
from pages import units
from pages.blocks import (
    Document,
    Facts,
    Figure,
    Fold,
    Items,
    Paragraph,
    Section,
    Table,
    Tiles,
    Verdict,
)
from pages.plots import Axis, Plot, Series

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loadtests.chaos.measuring.findings import Findings
    from loadtests.chaos.measuring.served import Served
    from loadtests.chaos.results.journal_file import Journal
    from loadtests.chaos.results.repetitions import Repeated, Repetitions
    from loadtests.chaos.results.scorecard import Scorecard, ScorecardChange
    from pages.blocks import Block, Tone

_MS: Final = 1e3
_TILES: Final = (
    "outage_seconds",
    "recovered_seconds",
    "availability_ratio",
    "metric_seconds",
    "alert_seconds",
    "budget_burnt_ratio",
)
_VERDICTS: Final[dict[str, tuple[Tone, str]]] = {
    "failed": (
        "bad",
        "FAILED: the experiment did not run to its end, so nothing is shown",
    ),
    "invalid": (
        "note",
        "INVALID: the load generator's own delays are in the numbers",
    ),
    "finding": ("bad", "FINDING: a weakness"),
    "held": ("good", "HELD: users were served as the hypothesis demands"),
}
"""The worst first."""
_CALLS: Final[dict[str, tuple[Tone, str]]] = {
    "worse": ("bad", "Worse than before"),
    "better": ("good", "Better than before, and nothing is worse"),
    "same": ("good", "Nothing changed that matters"),
    "unknown": (
        "note",
        "Undecided: it takes more repetitions, or the experiments that are missing",
    ),
}
_SCORES: Final = {
    "availability_ratio": "available",
    "outage_seconds": "outage",
    "recovered_seconds": "recovered after",
    "metric_seconds": "metric after",
    "alert_seconds": "alert after",
}
"""Columns of a card: medians over the repetitions."""


def document(
    card: Scorecard,
    change: ScorecardChange | None = None,
    journal: Journal | None = None,
) -> Document:
    """Return the report of a scorecard, of its changes, and of its only journal."""
    if journal is None:
        versions = (
            f"{part} {' and '.join(known)}" for part, known in card.versions.items()
        )
        about = ", ".join(versions) or "versions unknown"
        return Document("Chaos scorecard", _card(card, change), (about,))
    first, count = journal.findings[0], len(journal.findings)
    known = ", ".join(f"{k} {v}" for k, v in sorted(first.versions.items()))
    started = datetime.fromtimestamp(first.started_at, UTC)
    about = (
        f"{started:%Y-%m-%d %H:%M:%S} UTC · {count} repetition{'s' * (count != 1)} · "
        f"{known or 'versions unknown'}"
    )
    description = str(journal.evidence[0].experiment.get("description", ""))
    return Document(journal.title, _journal(journal, card), (description, about))


def _card(card: Scorecard, change: ScorecardChange | None) -> Iterator[Block]:
    count = len(card.rows)
    held = f"{card.held} of {count} held"
    if change is None:
        yield Verdict("good" if card.held == count else "bad", held)
    else:
        yield Verdict(*_CALLS[change.call])
        yield Paragraph(held)
    yield _scores(card)
    if change is not None:
        heads = ("experiment", "number", "before", "after", "call")
        remark = (
            "A number changed only where the intervals, or from three repetitions on "
            "the ranges, do not overlap and differ by more than matters."
        )
        yield Section(
            "Compared with before",
            (Table(heads, list(_changes(change))), Paragraph(remark, soft=True)),
        )
    yield Section(
        "Findings",
        [
            Section(strength_name(row.title, row.strength), [Items(row.reasons)])
            for row in card.rows
            if row.reasons
        ]
        or [Paragraph("None.")],
    )


def _journal(journal: Journal, card: Scorecard) -> Iterator[Block]:
    verdicts = {found.verdict for found in journal.findings}
    yield Verdict(*next(told for name, told in _VERDICTS.items() if name in verdicts))
    reasons = Counter(r for found in journal.findings for r in found.reasons)
    if reasons:
        yield Items([f"{r} ({n} times)" if n > 1 else r for r, n in reasons.items()])
    whole = repetitions(journal.findings)
    swept = _swept(journal)
    if swept is None:
        yield Tiles(_tiles(journal.findings, whole))
    yield _scores(card)
    if swept is not None:
        title = "Degradation over the fault's strength"
        yield Section(title, _degradation(swept, journal.findings))
    elif len(journal.findings) > 1:
        yield Section("Over all repetitions", _repeated(whole))
    alone = len(journal.findings) == 1
    for place, (seen, found) in enumerate(
        zip(journal.evidence, journal.findings, strict=True)
    ):
        yield Fold(
            repetition_name(found),
            repetition(found, seen, reasons=not alone),
            tone=_VERDICTS[found.verdict][0],
            badge=found.verdict,
            is_open=place == 0,
        )
    yield Fold("How to repeat it", [_origin(journal)], in_text=False)


def _scores(card: Scorecard) -> Table:
    """A row for each experiment; times count from the injection."""
    return Table(
        (
            *("experiment", "verdict", "recovered"),
            *_SCORES.values(),
            *("lost", "wrong", "sidecar"),
        ),
        [
            (
                strength_name(row.title, row.strength),
                row.verdict,
                f"{row.repeated.recovered} of {row.repeated.repetitions}",
                *(_median(name, row.repeated.numbers.get(name)) for name in _SCORES),
                "unknown" if row.lost is None else str(row.lost),
                "unknown" if row.wrong is None else str(row.wrong),
                outcome(row.sidecar_kept),
            )
            for row in card.rows
        ],
    )


def _changes(change: ScorecardChange) -> Iterator[tuple[str, ...]]:
    """Yield rows of two cards: experiment, number, before, after, call."""
    for row in change.rows:
        name = strength_name(row.title, row.strength)
        yield (name, "verdict", row.before or "absent", row.after or "absent", row.call)
        for one in row.changes:
            medians = (_median(one.number, n) for n in (one.before, one.after))
            yield (name, TITLES[one.number], *medians, one.call)


def _median(name: str, number: Repeated | None) -> str:
    return "unknown" if number is None else _value(name, number.median)


def _value(name: str, number: float) -> str:
    """A number in the unit that its name ends with."""
    if name.endswith("_ratio"):
        return units.percent(number)
    if name == "bad_request_seconds":
        return f"{number:.4g}"
    return units.duration(number)


def _interval(name: str, number: Repeated) -> str:
    """The interval of a median, or the range where there are too few for one."""
    if number.known == 1:
        return "one repetition"
    low, high, kind = number.low, number.high, ""
    if low is None or high is None:
        low, high, kind = number.least, number.most, "range; "
    return (
        f"{_value(name, low)} to {_value(name, high)} ({kind}none is "
        f"further than {_value(name, number.within)} from the median)"
    )


def _tiles(found: Sequence[Findings], whole: Repetitions) -> dict[str, str]:
    tiles = {
        TITLES[name]: _value(name, whole.numbers[name].median)
        for name in _TILES
        if name in whole.numbers
    }
    lost = [one.lost for one in found if one.lost is not None]
    wrong = [one.wrong for one in found if one.wrong is not None]
    if lost:
        tiles["requests lost"] = str(sum(lost))
        tiles["answers wrong"] = str(sum(wrong))
    return tiles


def _repeated(found: Repetitions) -> Iterator[Block]:
    yield Table(
        ("number", "known", "median", "95 % interval"),
        [
            (
                TITLES[name],
                f"{number.known} of {found.repetitions}",
                _value(name, number.median),
                _interval(name, number),
            )
            for name, number in found.numbers.items()
        ],
    )
    if any(number.low is None for number in found.numbers.values()):
        yield Paragraph(
            "Below six repetitions a median has no interval; the range is shown.",
            soft=True,
        )


def _swept(journal: Journal) -> str | None:
    """Return the setting whose strength varies; None where there are not two of them."""
    if len(by_strength(journal.findings)) == 1:
        return None
    sweep = extension_of(journal.evidence[0].experiment).get("sweep") or {}
    return str(sweep.get("setting", "strength"))


def _degradation(setting: str, found: Sequence[Findings]) -> Iterator[Block]:
    """Blocks on the strengths that held in every repetition, and on service at each."""
    groups = {at: group for at, group in by_strength(found).items() if at is not None}
    broken = [at for at, group in groups.items() if any(one.deviated for one in group)]
    held = list(takewhile(lambda at: at not in broken, groups))
    during = [[one.during for one in group if one.during] for group in groups.values()]
    low, high, share = np.array(list(map(_share, during))).T
    stood = f"{held[-1]:g}" if held else "no strength tried"
    broke = f", and not at {broken[0]:g}" if broken else ""
    chance = ""
    if (low[1:] > high[:-1]).any():
        chance = " A stronger fault did less: something else varies."
    yield Paragraph(f"The hypothesis held up to {stood} of {setting}{broke}.{chance}")
    strengths = np.array(list(groups))
    order = np.argsort(strengths)
    x = strengths[order]
    low, high, share = (100 * part[order] for part in (low, high, share))
    p50, p95 = (
        _MS * np.array([_typical(part, name) for part in during])[order]
        for name in ("p50", "p95")
    )
    axis = Axis(setting.replace("_", " "), low=float(x[0]), high=float(x[-1]))
    yield Figure(
        Plot(
            "Availability during the fault",
            axis,
            Axis("percent", low=0.0, high=105.0),
            (
                Series("95 % interval", x, low, "band", upper=high, colour=2),
                Series("right answers", x, share, colour=2),
                Series("", x, share, "points", colour=2),
            ),
        )
    )
    yield Figure(
        Plot(
            "Latency during the fault",
            axis,
            Axis("milliseconds", log=True),
            (
                Series("median", x, p50, colour=0),
                Series("p95", x, p95, colour=3),
                Series("", x, p95, "points", colour=3),
            ),
        )
    )


def _share(parts: Sequence[Served]) -> tuple[float, float, float]:
    """Ends of the 95 % interval of the share of right answers, and that share.

    As if requests failed independently (Wilson 1927).
    """
    from scipy.stats import binomtest  # noqa: PLC0415 - heavy, only here

    right, asked = (
        sum(getattr(p, name) for p in parts) for name in ("right", "requests")
    )
    if not asked:
        return math.nan, math.nan, math.nan
    ends = binomtest(right, asked).proportion_ci(method="wilson")
    return float(ends.low), float(ends.high), right / asked


def _typical(parts: Sequence[Served], name: str) -> float:
    """Median over the repetitions of their quantile."""
    found = repeated([getattr(part, name) for part in parts])
    return math.nan if found is None else found.median


def _origin(journal: Journal) -> Facts:
    evidence = journal.evidence[0]
    extension = extension_of(evidence.experiment)
    load: Mapping[str, Any] = extension.get("load") or {}
    facts: dict[str, Any] = {
        "target": extension.get("target"),
        "blast radius": extension.get("blast_radius"),
        "seed": extension.get("seed", 1),
        "load": load.get("profile", "the default"),
        "client": _client(load),
        "recovered means": extension.get("recovery", "the default"),
        "versions": dict(evidence.versions),
    }
    if evidence.load is not None:
        about = evidence.load.about
        facts |= {
            "profile": dict(about.profile),
            "SHA-256 of the payloads": about.payload_sha256,
            "hardware of the sender": dict(about.hardware),
            "versions of the sender": dict(about.versions),
        }
    return Facts(facts)


def _client(load: Mapping[str, Any]) -> str:
    """Return how the client retries, in words: recovery times depend on it."""
    try:
        return LoadSettings.model_validate(load).client
    except ValidationError:
        return "unknown"
