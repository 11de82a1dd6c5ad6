"""The report of one repetition: answers to users, faults, the sidecar's guarantees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtests.chaos.report import timeline
from pages import units
from pages.blocks import Facts, Figure, Items, Paragraph, Section, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.chaos.measuring.detection import Detected
    from loadtests.chaos.measuring.findings import FaultFindings, Findings
    from loadtests.chaos.measuring.observations import Evidence
    from loadtests.chaos.measuring.sidecar_promises import SidecarPromises
    from pages.blocks import Block


def repetition(
    found: Findings, seen: Evidence | None = None, *, reasons: bool = True
) -> Iterator[Block]:
    """Return the blocks of one repetition; plots and steps need its evidence."""
    if reasons and found.reasons:
        yield Items(found.reasons)
    for note in found.notes:
        yield Paragraph(f"note: {note}", soft=True)
    if seen is not None:
        yield Section("Over time", map(Figure, timeline.plots(seen, found)))
    if found.before or found.during or found.after:
        yield Section("What users saw", _users(found))
    for fault in found.faults:
        yield Section(" and ".join(fault.span.kinds), _fault(fault))
    if found.sidecar is not None:
        yield Section("The sidecar", [Facts(_sidecar(found.sidecar))])
    if found.probes and seen is not None:
        yield Section("The steady-state hypothesis", [_probes(found)])
    if seen is not None and seen.steps:
        yield Section("Steps", [_steps(seen)])


def repetition_name(found: Findings) -> str:
    """Return the name of a repetition."""
    return strength_name(f"#{found.repetition + 1}", found.strength)


def strength_name(title: str, strength: float | None) -> str:
    """Return the name of an experiment, or of one strength of it."""
    return title if strength is None else f"{title} at {strength:g}"


def outcome(kept: bool | None) -> str:  # noqa: FBT001 - it is the value that is named
    """Return whether a guarantee was kept, in a word."""
    return {True: "kept", False: "broken", None: "unknown"}[kept]


def _users(found: Findings) -> Iterator[Block]:
    phases = {"before": found.before, "during": found.during, "after": found.after}
    yield Table(
        ("phase", "requests", "available", "p50", "p95", "p99", "lost", "wrong"),
        [
            (
                *(name, str(part.requests), units.percent(part.availability)),
                *map(units.duration, (part.p50, part.p95, part.p99)),
                *(str(part.lost), str(part.wrong)),
            )
            for name, part in phases.items()
            if part is not None
        ],
    )
    budget = found.budget
    if budget is not None:
        yield Paragraph(
            f"Of an objective of {budget.objective_ratio:.4%}, "
            f"{units.percent(budget.bad_ratio)} of requests were bad since the fault: "
            f"{units.number(budget.burn_rate)} times what is allowed, and "
            f"{units.percent(budget.burnt_ratio)} of the budget of "
            f"{budget.window_seconds / 86400:g} days at this rate of requests.",
            soft=True,
        )


def _fault(fault: FaultFindings) -> Iterator[Block]:
    recovery = fault.recovery
    if recovery is None:
        yield Paragraph("Nothing was asked.")
    else:
        state = recovery.state.replace("_", " ")
        yield Paragraph(f"{units.capital(state)}: {recovery.reason}.")
    yield Facts(_course(fault))
    signals = list(_signals(fault))
    if signals:
        yield Table(("shown by", "after", "within", "until"), signals)
    start = fault.span.inject_seconds
    alerts = [
        (
            one.name,
            *(
                _since(at, start, "+.2f", "not seen")
                for at in (
                    one.pending_seconds,
                    one.firing_seconds,
                    one.resolved_seconds,
                )
            ),
        )
        for one in fault.detection.alerts
        if one.firing_seconds is not None
    ]
    if alerts:
        yield Table(("alert", "pending", "firing", "resolved"), alerts)


def _since(
    at: float | None, start: float, digits: str = "+.3f", missing: str = "unknown"
) -> str:
    return missing if at is None else f"{at - start:{digits}} s"


def _course(fault: FaultFindings) -> dict[str, str]:
    """The instants of one fault, from its injection on."""
    recovery, span, start = fault.recovery, fault.span, fault.span.inject_seconds
    found = {
        "injected at": f"{start:.3f} s",
        "seen to be undone": _since(span.reverted_seconds, start),
    }
    if span.restarted_seconds is not None:
        found["server ready again"] = _since(span.restarted_seconds, start)
    if recovery is None:
        return found
    instants = {
        "first bad request due": recovery.first_bad_seconds,
        "first user noticed": recovery.noticed_seconds,
        "first right answer": recovery.first_good_seconds,
        "SLO recovered": recovery.recovered_seconds,
    }
    unaffected, outage = recovery.state == "unaffected", recovery.outage
    for name, at in instants.items():
        found[name] = "never" if unaffected else _since(at, start)
    length = "unknown"
    if outage is not None:
        length = f"{outage.seconds:.3f} s{'' if outage.ended else ' and more'}"
    return found | {
        "outage": length,
        "late beyond": units.duration(recovery.limit_seconds),
        "bad requests": str(recovery.bad_requests),
        "bad request-seconds": f"{recovery.bad_request_seconds:.4g}",
        "relapses": str(recovery.relapses),
    }


def _signals(fault: FaultFindings) -> Iterator[tuple[str, str, str, str]]:
    """Yield each condition on a fault, when it held, its limit, and its end."""
    start = fault.span.inject_seconds
    cleared = {one.condition: one.cleared_seconds for one in fault.detection.metrics}
    resolved = {one.name: one.resolved_seconds for one in fault.detection.alerts}
    for one in fault.detected:
        if one.metric is not None:
            yield (
                one.metric,
                _after(one.metric_after_seconds, one.metric_in_time),
                f"{one.metric_within_seconds:g} s{_of_effect(one)}",
                _since(cleared.get(one.metric), start, "+.2f"),
            )
        if one.alert is not None:
            yield (
                one.alert,
                _after(one.alert_after_seconds, one.alert_in_time),
                f"{one.alert_within_seconds:g} s",
                _since(resolved.get(one.alert), start, "+.2f"),
            )


def _of_effect(one: Detected) -> str:
    """Return the time from the effect of a fault to when it was shown."""
    took = one.metric_since_effect_seconds
    return "" if took is None else f" of being there: {took:.2f} s"


def _after(seconds: float | None, in_time: bool | None) -> str:  # noqa: FBT001
    if seconds is not None:
        return f"{seconds:+.2f} s{'' if in_time else ', too late'}"
    return "never" if in_time is False else "unknown"


def _sidecar(sidecar: SidecarPromises) -> dict[str, str]:
    """Return the sidecar's guarantees, and whether each was kept."""
    growth, descriptors = sidecar.resident_growth_bytes, sidecar.open_fds_growth
    fast = sidecar.scrape_p95_before_seconds, sidecar.scrape_p95_since_seconds
    memory = "memory unknown" if growth is None else f"{growth / 2**20:+.2f} MiB"
    files = "" if descriptors is None else f", {descriptors:+d} descriptors"
    return {
        "stays up": f"{outcome(sidecar.stayed_up)} ({sidecar.failed_scrapes} of "
        f"{sidecar.scrapes} scrapes failed)",
        "comes back by itself": outcome(sidecar.came_back),
        "keeps its scrape time": f"{outcome(sidecar.kept_scrape_time)} (p95 "
        f"{units.duration(fast[0])} before, {units.duration(fast[1])} since)",
        "leaks nothing": f"{outcome(sidecar.leaked_nothing)} ({memory}{files})",
        "tells the truth within two intervals": f"{outcome(sidecar.told_the_truth)} ("
        f"over after {units.duration(sidecar.cleared_after_seconds)}, interval "
        f"{units.duration(sidecar.probe_interval_seconds)})",
    }


def _probes(found: Findings) -> Table:
    return Table(
        ("probe", "phase", "asked", "met", "unknown", "lowest", "highest"),
        [
            (
                *(one.probe, one.phase, str(one.asked), str(one.met), str(one.unknown)),
                *(units.number(one.lowest), units.number(one.highest)),
            )
            for one in found.probes
        ],
    )


def _steps(seen: Evidence) -> Table:
    return Table(
        ("activity", "part", "at", "took", "outcome"),
        [
            (
                str(step.activity.get("name", "")),
                step.part,
                f"{step.at_seconds:.3f} s",
                units.duration(step.seconds),
                "succeeded" if step.succeeded else f"failed: {step.problem}",
            )
            for step in seen.steps
        ],
    )
