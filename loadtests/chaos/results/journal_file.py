"""The journal of an experiment: Chaos Toolkit's, with a block of our own.

Chaos Toolkit's keys hold the steps and checks of all repetitions in their order. Data without
a place there (times of requests, metrics, alerts, findings) is under `tritonwatch`, one entry
a repetition.
"""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import Field

from exporter.settings import Settings
from exporter.system import whole_file
from loadtests import json_file
from loadtests.chaos.measuring.findings import Findings, findings
from loadtests.chaos.measuring.observations import Evidence
from loadtests.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from loadtests.chaos.measuring.observations import Check, Part, Phase, Status

FORMAT: Final = "tritonwatch-chaos-journal"
VERSION: Final = 3
MAX_FILE_BYTES: Final = 1 << 28
_STATUSES: Final[tuple[Status, ...]] = ("completed", "aborted", "failed", "interrupted")
"""Statuses from best to worst, for several repetitions together."""


class Judged(Evidence):
    """One repetition: evidence and findings."""

    findings: Findings


class Block(Settings):
    """Our block of a journal."""

    format: Literal["tritonwatch-chaos-journal"] = FORMAT
    version: Literal[3] = VERSION
    repetitions: tuple[Judged, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Journal:
    """The repetitions of an experiment, in their order; at least one."""

    repetitions: tuple[Judged, ...]

    @classmethod
    def of(cls, evidence: Iterable[Evidence]) -> Self:
        """Judge each repetition."""
        return cls(
            tuple(
                Judged(
                    **{name: getattr(one, name) for name in Evidence.model_fields},
                    findings=findings(one),
                )
                for one in evidence
            )
        )

    @property
    def title(self) -> str:
        """Title of the experiment."""
        return self.repetitions[0].title


def to_document(journal: Journal) -> dict[str, Any]:
    """The journal as JSON."""
    return {
        **_toolkit_journal(journal.repetitions),
        "tritonwatch": Block(repetitions=journal.repetitions).model_dump(mode="json"),
    }


def write(path: Path, journal: Journal) -> None:
    """Write the file, in full or not at all.

    Raises:
        PlanError: it cannot be written.
    """
    document = to_document(journal)
    data = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    try:
        whole_file.write(path, data, 0o644)
    except OSError as error:
        raise PlanError(f"cannot be written: {error.strerror}", str(path)) from None


def read(path: Path) -> Journal:
    """The journal that a file holds.

    Raises:
        PlanError: it cannot be read, or is no journal of ours.
    """
    return from_document(json_file.read(path, MAX_FILE_BYTES), str(path))


def is_journal(document: Any) -> bool:
    """Return whether the document declares our journal format."""
    block = document.get("tritonwatch") if isinstance(document, dict) else None
    return isinstance(block, dict) and block.get("format") == FORMAT


def from_document(document: Any, source: str = "the journal") -> Journal:
    """The journal that `to_document` made.

    Raises:
        PlanError: it is no journal, or contradicts itself.
    """
    if not is_journal(document):
        raise PlanError(
            "is not a journal of `tritonwatch chaos run`; want one with a block "
            f'"tritonwatch": {{"format": "{FORMAT}"}}',
            source,
        )
    json_file.require_version(document["tritonwatch"], VERSION, source)
    block = json_file.validated(Block, document["tritonwatch"], source)
    experiment = document.get("experiment")
    if not isinstance(experiment, dict):
        raise PlanError("is an incomplete journal: it has no experiment", source)
    return Journal(
        tuple(
            one.model_copy(update={"experiment": experiment})
            for one in block.repetitions
        )
    )


def _toolkit_journal(evidence: Sequence[Judged]) -> dict[str, Any]:
    """The journal of an experiment's repetitions, which are one run to Chaos Toolkit.

    `steady_states` holds the first state before, the last one after, and every one
    during; `run` and `rollbacks` hold what ran, in its order.
    """
    first, last = evidence[0], evidence[-1]
    end = last.started_at + last.ended_seconds
    return {
        "chaoslib-version": "not used",
        "platform": platform.platform(),
        "node": platform.node(),
        "experiment": first.experiment,
        "start": _time(first.started_at),
        "status": max((one.status for one in evidence), key=_STATUSES.index),
        "deviated": any(one.findings.deviated for one in evidence),
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
    """Yield each round in which all probes were evaluated one after the other."""
    rounds: list[list[Check]] = []
    for check in evidence.checks:
        if check.phase != phase:
            continue
        if not rounds or check.probe in {c.probe for c in rounds[-1]}:
            rounds.append([])
        rounds[-1].append(check)
    hypothesis = evidence.experiment.get("steady-state-hypothesis") or {}
    activities = {
        probe.get("name", ""): probe for probe in hypothesis.get("probes", ())
    }
    for checks in rounds:
        yield {
            "steady_state_met": all(check.met for check in checks),
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
                for check in checks
            ],
        }
