"""The page of one journal: an experiment with all its repetitions and strengths."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pydantic import ValidationError

from loadtests.chaos.measuring.findings import extension_of
from loadtests.chaos.report import timeline, words
from loadtests.chaos.results.degradation import curve
from loadtests.chaos.results.repeated import repetitions
from loadtests.chaos.running.users import LoadSettings
from loadtests.report import page
from loadtests.report.svg import Axis, Plot, Series

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loadtests.chaos.measuring.evidence import Evidence
    from loadtests.chaos.measuring.findings import Findings
    from loadtests.chaos.results.degradation import Curve, Service
    from loadtests.chaos.results.journal_file import Journal
    from loadtests.chaos.results.repeated import Repetitions

_MS: Final = 1e3
_ORDER: Final = ("failed", "invalid", "finding", "held")
_OPEN: Final = 1
"""So many repetitions are shown at once; the others unfold."""


def render(journal: Journal) -> str:
    """The whole file."""
    return page.page(f"Chaos: {journal.title}", _parts(journal))


def _parts(journal: Journal) -> Iterator[str]:
    first = journal.findings[0]
    document = journal.evidence[0].experiment
    started = datetime.fromtimestamp(first.started_at, UTC)
    count = len(journal.findings)
    yield f"<header><h1>{escape(journal.title)}</h1>"
    yield f"<p>{escape(str(document.get('description', '')))}</p>"
    versions = ", ".join(f"{k} {v}" for k, v in sorted(first.versions.items()))
    yield (
        f'<p class="soft">{started:%Y-%m-%d %H:%M:%S} UTC · '
        f"{count} repetition{'' if count == 1 else 's'} · "
        f"{escape(versions or 'versions unknown')}</p>"
    )
    worst = min(journal.findings, key=lambda one: _ORDER.index(one.verdict))
    yield page.verdict(words.TONES[worst.verdict], _capital(words.SAID[worst.verdict]))
    yield from _reasons(journal)
    yield "</header><main>"
    swept = _curve(journal)
    if swept is None:
        yield page.tiles(_tiles(journal))
    else:
        yield from _degradation(swept)
    if count > 1 and swept is None:
        yield from _repeated(repetitions(journal.findings))
    for place, (evidence, found) in enumerate(
        zip(journal.evidence, journal.findings, strict=True)
    ):
        yield from _repetition(
            evidence, found, unfolded=place < _OPEN, alone=count == 1
        )
    yield from _origin(journal)
    yield "</main>"


def _reasons(journal: Journal) -> Iterator[str]:
    said: dict[str, int] = {}
    for found in journal.findings:
        for reason in found.reasons:
            said[reason] = said.get(reason, 0) + 1
    if said:
        items = "".join(
            f"<li>{escape(reason)}{'' if times == 1 else f' ({times} times)'}</li>"
            for reason, times in said.items()
        )
        yield f"<ul>{items}</ul>"
    notes = dict.fromkeys(note for found in journal.findings for note in found.notes)
    for note in notes:
        yield f'<p class="soft">Note: {escape(note)}</p>'


def _tiles(journal: Journal) -> dict[str, str]:
    numbers = repetitions(journal.findings).numbers
    tiles = {
        words.NAMES[name]: words.value(name, numbers[name].median)
        for name in (
            "outage_seconds",
            "recovered_seconds",
            "availability_ratio",
            "metric_seconds",
            "alert_seconds",
            "budget_burnt_ratio",
        )
        if name in numbers
    }
    lost = [one.lost for one in journal.findings if one.lost is not None]
    wrong = [one.wrong for one in journal.findings if one.wrong is not None]
    if lost:
        tiles["requests lost"] = str(sum(lost))
        tiles["answers wrong"] = str(sum(wrong))
    return tiles


def _repeated(found: Repetitions) -> Iterator[str]:
    yield "<h2>Over all repetitions</h2>"
    yield page.table(
        ("number", "known", "median", "95 % interval"),
        (
            (
                words.NAMES[name],
                f"{number.known} of {found.repetitions}",
                words.value(name, number.median),
                words.interval(name, number),
            )
            for name, number in found.numbers.items()
        ),
    )
    if any(number.low is None for number in found.numbers.values()):
        yield (
            '<p class="soft">Fewer than six repetitions carry no interval of a median; '
            "their range is shown.</p>"
        )


def _curve(journal: Journal) -> Curve | None:
    extension = extension_of(journal.evidence[0].experiment)
    sweep: Mapping[str, Any] = extension.get("sweep") or {}
    return curve(str(sweep.get("setting", "strength")), journal.findings)


def _degradation(found: Curve) -> Iterator[str]:
    x = np.array([point.strength for point in found.points])
    order = np.argsort(x)
    low, high, share = (
        np.array([_or_nan(getattr(point, name)) for point in found.points])[order] * 100
        for name in ("low", "high", "availability")
    )
    axis = Axis(
        found.setting.replace("_", " "), low=float(x.min()), high=float(x.max())
    )
    yield "<h2>Degradation over the fault's strength</h2>"
    yield f"<p>{escape(_stands(found))}</p>"
    yield page.figure(
        Plot(
            "Availability while the fault was there",
            axis,
            Axis("percent", low=0.0, high=105.0),
            (
                Series("95 % interval", x[order], low, "band", upper=high, colour=2),
                Series("right answers", x[order], share, colour=2),
                Series("", x[order], share, "points", colour=2),
            ),
        )
    )
    p50, p95 = (
        np.array([_or_nan(getattr(point, name)) for point in found.points])[order] * _MS
        for name in ("p50", "p95")
    )
    yield page.figure(
        Plot(
            "Latency while the fault was there",
            axis,
            Axis("milliseconds", log=True),
            (
                Series("median", x[order], p50, colour=0),
                Series("p95", x[order], p95, colour=3),
                Series("", x[order], p95, "points", colour=3),
            ),
        )
    )
    yield page.table(
        (
            "strength",
            "runs",
            "requests",
            "availability",
            "interval",
            "p50",
            "p95",
            "did not hold",
        ),
        (
            ("none", "", *_served_so(found.without), ""),
            *(
                (
                    f"{point.strength:g}",
                    str(point.repeated.repetitions),
                    *_served_so(point),
                    str(point.deviated),
                )
                for point in found.points
            ),
        ),
    )


def _served_so(part: Service) -> tuple[str, ...]:
    return (
        str(part.requests),
        page.share(part.availability),
        f"{page.share(part.low)} to {page.share(part.high)}",
        page.time(part.p50),
        page.time(part.p95),
    )


def _stands(found: Curve) -> str:
    stood = "no strength tried" if found.stands is None else f"{found.stands:g}"
    broke = "" if found.breaks is None else f", and not at {found.breaks:g}"
    chance = "" if found.falls else " A stronger fault did less: something else varies."
    return f"The hypothesis held up to {stood} of {found.setting}{broke}.{chance}"


def _repetition(
    evidence: Evidence, found: Findings, *, unfolded: bool, alone: bool
) -> Iterator[str]:
    strength = "" if found.strength is None else f", strength {found.strength:g}"
    name = f"Repetition {found.repetition + 1}{strength}: {found.verdict}"
    if not alone:
        yield f"<details{' open' if unfolded else ''}><summary>{escape(name)}</summary>"
    yield "<h2>Over time</h2>"
    for plot in timeline.plots(evidence, found):
        yield page.figure(plot)
    yield from _users(found)
    yield from _faults(found)
    yield from _checks(found)
    if found.sidecar is not None:
        yield "<h2>The sidecar's own promises</h2>"
        yield page.facts(words.promises(found.sidecar))
    yield from _steps(evidence)
    if not alone:
        yield "</details>"


def _users(found: Findings) -> Iterator[str]:
    yield "<h2>What users saw</h2>"
    yield page.table(
        ("phase", "requests", "available", "p50", "p95", "p99", "lost", "wrong"),
        words.served(found),
    )
    budget = found.budget
    if budget is not None:
        yield (
            f'<p class="soft">Of an objective of {budget.objective_ratio:.4%}, '
            f"{page.share(budget.bad_ratio)} of requests were bad since the fault: "
            f"{page.number(budget.burn_rate)} times what is allowed, and "
            f"{page.share(budget.burnt_ratio)} of the budget of "
            f"{budget.window_seconds / 86400:g} days at this rate of requests.</p>"
        )


def _faults(found: Findings) -> Iterator[str]:
    for fault in found.faults:
        yield f"<h2>{escape(words.kinds(fault))}</h2>"
        yield f"<p>{escape(_capital(words.state(fault)))}.</p>"
        yield page.facts(words.course(fault))
        rows = list(words.detections(fault))
        if rows:
            yield page.table(("told by", "after", "within", "until"), rows)
        others = [a for a in fault.detection.alerts if a.firing_seconds is not None]
        if others:
            start = fault.span.inject_seconds
            yield page.table(
                ("alert", "pending", "firing", "resolved"),
                (
                    (
                        one.name,
                        _at(one.pending_seconds, start),
                        _at(one.firing_seconds, start),
                        _at(one.resolved_seconds, start),
                    )
                    for one in others
                ),
            )


def _at(seconds: float | None, start: float) -> str:
    return "not seen" if seconds is None else f"{seconds - start:+.2f} s"


def _checks(found: Findings) -> Iterator[str]:
    if not found.probes:
        return
    yield "<h2>The steady-state hypothesis</h2>"
    yield page.table(
        ("probe", "phase", "asked", "met", "unknown", "lowest", "highest"),
        (
            (
                one.probe,
                one.phase,
                str(one.asked),
                str(one.met),
                str(one.unknown),
                page.number(one.lowest),
                page.number(one.highest),
            )
            for one in found.probes
        ),
    )


def _steps(evidence: Evidence) -> Iterator[str]:
    if not evidence.steps:
        return
    yield "<h2>What was done</h2>"
    yield page.table(
        ("activity", "part", "at", "took", "outcome"),
        (
            (
                str(step.activity.get("name", "")),
                step.part,
                f"{step.at_seconds:.3f} s",
                page.time(step.seconds),
                "succeeded" if step.succeeded else f"failed: {step.problem}",
            )
            for step in evidence.steps
        ),
    )


def _origin(journal: Journal) -> Iterator[str]:
    evidence = journal.evidence[0]
    extension = extension_of(evidence.experiment)
    load: Mapping[str, Any] = extension.get("load") or {}
    told: dict[str, Any] = {
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
        told |= {
            "profile": dict(about.profile),
            "SHA-256 of the payloads": about.payload_sha256,
            "hardware of the sender": dict(about.hardware),
            "versions of the sender": dict(about.versions),
        }
    yield "<details><summary>How to get it again</summary>"
    yield page.facts(told)
    yield "</details>"


def _client(load: Mapping[str, Any]) -> str:
    """How users come back, in words: what is measured depends on it."""
    try:
        return LoadSettings.model_validate(load).client
    except ValidationError:
        return "unknown"


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
