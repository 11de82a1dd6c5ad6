"""Findings in words, and as rows of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pages import units

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loadtests.chaos.measuring.detection import Detected
    from loadtests.chaos.measuring.findings import FaultFindings, Findings
    from loadtests.chaos.measuring.sidecar_promises import SidecarPromises
    from loadtests.chaos.results.repeated import Repeated
    from loadtests.chaos.results.scorecard import Row, ScorecardChange
    from pages.blocks import Tone

SAID: Final = {
    "held": "HELD: users were served as the hypothesis demands",
    "finding": "FINDING: a weakness",
    "failed": "FAILED: the experiment did not run to its end, so nothing is shown",
    "invalid": "INVALID: the load generator's own delays are in the numbers",
}
TONES: Final[dict[str, Tone]] = {
    "held": "good",
    "finding": "bad",
    "failed": "bad",
    "invalid": "note",
}
CALLS: Final = {
    "worse": "Worse than before",
    "better": "Better than before, and nothing is worse",
    "same": "Nothing changed that matters",
    "unknown": "Undecided: it takes more repetitions, or the experiments that are missing",
}
CALL_TONES: Final[dict[str, Tone]] = {
    "worse": "bad",
    "better": "good",
    "same": "good",
    "unknown": "note",
}
NAMES: Final = {
    "availability_ratio": "availability during the fault",
    "p95_seconds": "p95 during the fault",
    "outage_seconds": "outage",
    "first_good_seconds": "first right answer after",
    "recovered_seconds": "recovered after",
    "restarted_seconds": "server ready again after",
    "recovered_since_restart_seconds": "recovered since then",
    "metric_seconds": "metric shown after",
    "alert_seconds": "alert fired after",
    "bad_request_seconds": "bad request-seconds",
    "budget_burnt_ratio": "error budget burnt",
}


def value(name: str, number: float | None) -> str:
    """A number by its name's unit."""
    if number is None:
        return "unknown"
    if name.endswith("_ratio"):
        return units.percent(number)
    if name == "bad_request_seconds":
        return f"{number:.4g}"
    return units.duration(number)


def interval(name: str, number: Repeated) -> str:
    """The interval of a median, or the range where there are too few for one."""
    if number.known == 1:
        return "one repetition"
    low, high, what = number.low, number.high, ""
    if low is None or high is None:
        low, high, what = number.least, number.most, "range; "
    return (
        f"{value(name, low)} to {value(name, high)} ({what}none is "
        f"further than {value(name, number.within)} from the median)"
    )


def promise(kept: bool | None) -> str:  # noqa: FBT001 - it is what is told
    """Return whether it was kept."""
    return {True: "kept", False: "broken", None: "unknown"}[kept]


def kinds(fault: FaultFindings) -> str:
    """Return what was broken."""
    return " and ".join(fault.span.kinds)


def state(fault: FaultFindings) -> str:
    """Return how it ended for users."""
    recovery = fault.recovery
    if recovery is None:
        return "nothing was asked"
    return f"{recovery.state.replace('_', ' ')}: {recovery.reason}"


def course(fault: FaultFindings) -> dict[str, str]:
    """The instants of one fault, from its injection on."""
    recovery, start = fault.recovery, fault.span.inject_seconds

    def after(at: float | None) -> str:
        return "unknown" if at is None else f"{at - start:+.3f} s"

    told = {
        "injected at": f"{start:.3f} s",
        "seen to be undone": after(fault.span.reverted_seconds),
    }
    if fault.span.restarted_seconds is not None:
        told["server ready again"] = after(fault.span.restarted_seconds)
    if recovery is None:
        return told
    never = "never" if recovery.state == "unaffected" else None
    outage = recovery.outage
    told |= {
        "first bad request due": never or after(recovery.first_bad_seconds),
        "first user noticed": never or after(recovery.noticed_seconds),
        "first right answer": never or after(recovery.first_good_seconds),
        "SLO recovered": never or after(recovery.recovered_seconds),
        "outage": "unknown"
        if outage is None
        else f"{outage.seconds:.3f} s{'' if outage.ended else ' and more'}",
        "late beyond": units.duration(recovery.limit_seconds),
        "bad requests": str(recovery.bad_requests),
        "bad request-seconds": f"{recovery.bad_request_seconds:.4g}",
        "relapses": str(recovery.relapses),
    }
    return told


def detections(fault: FaultFindings) -> Iterator[tuple[str, str, str, str]]:
    """Yield what had to show a fault, when it did, its limit, and until when."""
    start = fault.span.inject_seconds
    for one in fault.detected:
        if one.metric is not None:
            shown = next(
                (s for s in fault.detection.metrics if s.condition == one.metric), None
            )
            over = None if shown is None else shown.cleared_seconds
            yield (
                one.metric,
                _after(one.metric_after_seconds, one.metric_in_time),
                f"{one.metric_within_seconds:g} s{_of_effect(one)}",
                "unknown" if over is None else f"{over - start:+.2f} s",
            )
        if one.alert is not None:
            fired = next(
                (a for a in fault.detection.alerts if a.name == one.alert), None
            )
            over = None if fired is None else fired.resolved_seconds
            yield (
                one.alert,
                _after(one.alert_after_seconds, one.alert_in_time),
                f"{one.alert_within_seconds:g} s",
                "unknown" if over is None else f"{over - start:+.2f} s",
            )


def _of_effect(one: Detected) -> str:
    """Return the time from the effect of a fault to when it was shown."""
    took = one.metric_since_effect_seconds
    return "" if took is None else f" of being there: {took:.2f} s"


def _after(seconds: float | None, in_time: bool | None) -> str:  # noqa: FBT001
    if seconds is not None:
        return f"{seconds:+.2f} s{'' if in_time else ', too late'}"
    return "never" if in_time is False else "unknown"


def promises(sidecar: SidecarPromises) -> dict[str, str]:
    """Return what the sidecar promises, and whether it kept it."""
    growth, descriptors = sidecar.resident_growth_bytes, sidecar.open_fds_growth
    fast = sidecar.scrape_p95_before_seconds, sidecar.scrape_p95_since_seconds
    interval_seconds = sidecar.probe_interval_seconds
    return {
        "stays up": f"{promise(sidecar.stayed_up)} ({sidecar.failed_scrapes} of "
        f"{sidecar.scrapes} scrapes failed)",
        "comes back by itself": promise(sidecar.came_back),
        "keeps its scrape time": f"{promise(sidecar.kept_scrape_time)} (p95 "
        f"{units.duration(fast[0])} before, {units.duration(fast[1])} since)",
        "leaks nothing": f"{promise(sidecar.leaked_nothing)} ("
        + ("memory unknown" if growth is None else f"{growth / 2**20:+.2f} MiB")
        + ("" if descriptors is None else f", {descriptors:+d} descriptors")
        + ")",
        "tells the truth within two intervals": f"{promise(sidecar.told_the_truth)} ("
        f"over after {units.duration(sidecar.cleared_after_seconds)}, interval "
        f"{units.duration(interval_seconds)})",
    }


def alerts(fault: FaultFindings) -> Iterator[tuple[str, str, str, str]]:
    """Return rows of the alerts that fired: name, pending, firing, resolved."""
    start = fault.span.inject_seconds

    def after(seconds: float | None) -> str:
        return "not seen" if seconds is None else f"{seconds - start:+.2f} s"

    for one in fault.detection.alerts:
        if one.firing_seconds is not None:
            yield (
                one.name,
                after(one.pending_seconds),
                after(one.firing_seconds),
                after(one.resolved_seconds),
            )


def row_name(title: str, strength: float | None) -> str:
    """Return the name of an experiment, or of one strength of it."""
    return title if strength is None else f"{title} at {strength:g}"


def repetition_name(found: Findings) -> str:
    """Return the name of a repetition."""
    return row_name(f"#{found.repetition + 1}", found.strength)


def changes(change: ScorecardChange) -> Iterator[tuple[str, ...]]:
    """Return rows of two cards: experiment, number, before, after, call."""

    def median_of(name: str, number: Repeated | None) -> str:
        return value(name, None if number is None else number.median)

    for row in change.rows:
        name = row_name(row.title, row.strength)
        yield (name, "verdict", row.before or "absent", row.after or "absent", row.call)
        for one in row.changes:
            before, after = (median_of(one.number, n) for n in (one.before, one.after))
            yield (name, NAMES[one.number], before, after, one.call)


def served(found: Findings) -> Iterator[tuple[str, ...]]:
    """Rows: phase, requests, availability, p50, p95, p99, lost, wrong."""
    for name in ("before", "during", "after"):
        part = getattr(found, name)
        if part is not None:
            yield (
                name,
                str(part.requests),
                units.percent(part.availability),
                units.duration(part.p50),
                units.duration(part.p95),
                units.duration(part.p99),
                str(part.lost),
                str(part.wrong),
            )


def scores(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Rows of a card: experiment, verdict, then the medians of its numbers."""
    for row in rows:
        numbers = row.repeated.numbers
        yield (
            row_name(row.title, row.strength),
            row.verdict,
            f"{row.repeated.recovered} of {row.repeated.repetitions}",
            *(median(numbers, name) for name in SCORED),
            "unknown" if row.lost is None else str(row.lost),
            "unknown" if row.wrong is None else str(row.wrong),
            promise(row.sidecar_kept),
        )


SCORED: Final = (
    "availability_ratio",
    "outage_seconds",
    "recovered_seconds",
    "metric_seconds",
    "alert_seconds",
)
SCORE_HEADS: Final = (
    "experiment",
    "verdict",
    "recovered",
    "available",
    "outage",
    "recovered after",
    "metric after",
    "alert after",
    "lost",
    "wrong",
    "sidecar",
)
"""Times count from the injection; availability is that while the fault was there."""


def median(numbers: Mapping[str, Repeated], name: str) -> str:
    """The median of a number, or that it is unknown."""
    number = numbers.get(name)
    return value(name, None if number is None else number.median)
