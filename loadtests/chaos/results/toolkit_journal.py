"""Chaos Toolkit's own keys of a journal, as its library 1.44 writes them."""

from __future__ import annotations

import importlib.metadata
import platform
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loadtests.chaos.measuring.evidence import Check, Evidence, Part, Phase, Status

_LIBRARY: Final = "chaostoolkit-lib"
_STATUSES: Final[tuple[Status, ...]] = ("completed", "aborted", "failed", "interrupted")
"""From the best to the worst, for several repetitions together."""


def journal(evidence: Sequence[Evidence], *, deviated: bool) -> dict[str, Any]:
    """The journal of an experiment's repetitions, which are one run to Chaos Toolkit.

    `steady_states` holds the first state before, the last one after, and every one
    during; `run` and `rollbacks` hold what ran, in its order.
    """
    first, last = evidence[0], evidence[-1]
    end = last.started_at + last.ended_seconds
    return {
        "chaoslib-version": _version(),
        "platform": platform.platform(),
        "node": platform.node(),
        "experiment": dict(first.experiment),
        "start": _time(first.started_at),
        "status": max((one.status for one in evidence), key=_STATUSES.index),
        "deviated": deviated,
        "steady_states": {
            "before": next(_states(first, "before"), None),
            "after": next(reversed(list(_states(last, "after"))), None),
            "during": [state for one in evidence for state in _states(one, "during")],
        },
        "run": [run for one in evidence for run in _runs(one, "method")],
        "rollbacks": [run for one in evidence for run in _runs(one, "rollbacks")],
        "end": _time(end),
        "duration": end - first.started_at,
    }


def _version() -> str:
    try:
        return importlib.metadata.version(_LIBRARY)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _time(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat()


def _runs(evidence: Evidence, part: Part) -> Iterator[dict[str, Any]]:
    for step in evidence.steps:
        if step.part == part:
            start = evidence.started_at + step.at_seconds
            yield {
                "activity": dict(step.activity),
                "output": step.output,
                "start": _time(start),
                "status": "succeeded" if step.succeeded else "failed",
                "end": _time(start + step.seconds),
                "duration": step.seconds,
                **({} if step.problem is None else {"exception": [step.problem]}),
            }


def _states(evidence: Evidence, phase: Phase) -> Iterator[dict[str, Any]]:
    """Each time that all probes were asked one after the other."""
    rounds: list[list[Check]] = []
    for check in evidence.checks:
        if check.phase != phase:
            continue
        if not rounds or check.probe in {c.probe for c in rounds[-1]}:
            rounds.append([])
        rounds[-1].append(check)
    activities = _activities(evidence.experiment)
    for asked in rounds:
        yield {
            "steady_state_met": all(check.met for check in asked),
            "probes": [
                {
                    "activity": dict(
                        activities.get(check.probe, {"name": check.probe})
                    ),
                    "output": check.value,
                    "start": _time(evidence.started_at + check.at_seconds),
                    "status": "failed" if check.value is None else "succeeded",
                    "end": _time(evidence.started_at + check.at_seconds),
                    "duration": 0.0,
                    "tolerance_met": check.met,
                }
                for check in asked
            ],
        }


def _activities(experiment: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    hypothesis = experiment.get("steady-state-hypothesis") or {}
    return {probe.get("name", ""): probe for probe in hypothesis.get("probes", ())}
