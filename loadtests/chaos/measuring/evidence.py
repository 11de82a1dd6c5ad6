"""The observations of an experiment: facts with their times, judged elsewhere.

All times are seconds from the start of the load, on the load's own clock, so that
requests, faults, checks, metrics and alerts lie on one line.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads it for journals
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from loadtests.result import RunResult

Phase = Literal["before", "during", "after"]
Part = Literal["method", "rollbacks"]
What = Literal[
    "inject",
    "injected",
    "revert",
    "reverted",
    "server_gone",
    "server_ready",
    "abort",
    "interrupted",
    "note",
]
"""`inject` and `revert` are the instants before the fault is touched, `injected` and
`reverted` those when it is seen to be there and to be gone."""
Status = Literal["completed", "failed", "aborted", "interrupted"]
"""As Chaos Toolkit's journal has them. A steady state that does not hold before the
method fails the experiment; one that does not hold later deviates, which is no status."""
UP: Final = "up"
"""Whether the sidecar was scraped, as Prometheus has it: what tells that it is away."""
AlertState = Literal["inactive", "pending", "firing"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened once."""

    at_seconds: float
    what: What
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Of faults: `kind`, and their settings beside."""


@dataclass(frozen=True, slots=True)
class Step:
    """One activity of the method or of the rollbacks, as it ran."""

    at_seconds: float
    seconds: float
    part: Part
    activity: Mapping[str, Any]
    """As the experiment has it."""
    succeeded: bool
    output: Any = None
    problem: str | None = None
    """What was wrong, in a sentence."""


@dataclass(frozen=True, slots=True)
class Check:
    """One probe of the steady-state hypothesis, asked once."""

    at_seconds: float
    phase: Phase
    probe: str
    """Its name."""
    value: float | None
    """None where it could not be told: nothing was asked of the server meanwhile."""
    met: bool
    """Within its tolerance; what cannot be told is not."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of one series of the sidecar, polled."""

    at_seconds: float
    metric: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class AlertChange:
    """An alert came to a state."""

    at_seconds: float
    name: str
    labels: Mapping[str, str]
    state: AlertState


@dataclass(frozen=True, slots=True)
class Scrape:
    """One scrape of the sidecar, and what it then held."""

    at_seconds: float
    seconds: float
    ok: bool
    resident_bytes: int | None = None
    open_fds: int | None = None
    threads: int | None = None
    """Of its process, where that runs on this host."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One repetition of one experiment."""

    experiment: Mapping[str, Any]
    """The whole document, as Chaos Toolkit reads it."""
    started_at: float
    """Unix time of the load's start."""
    ended_seconds: float
    """When the last rollback was done."""
    status: Status
    load: RunResult | None
    """None where nothing was sent."""
    repetition: int = 0
    strength: float | None = None
    """Of the fault, in the unit of its setting, where the experiment is one of a sweep."""
    events: tuple[Event, ...] = ()
    steps: tuple[Step, ...] = ()
    checks: tuple[Check, ...] = ()
    samples: tuple[Sample, ...] = ()
    """Of the sidecar's metrics, every quarter of a second. A poll that failed leaves
    none, and so does a series that was absent."""
    alerts: tuple[AlertChange, ...] = ()
    alerts_watched: bool = False
    """Whether a Prometheus with the shipped rules was asked all along."""
    scrapes: tuple[Scrape, ...] = ()
    leftovers: tuple[str, ...] = ()
    """What of the faults is left on the host."""
    problems: tuple[str, ...] = ()
    """What went wrong beside, in sentences."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the deployment: "triton", "tritonwatch", models by name."""

    @property
    def seen_seconds(self) -> float:
        """How long anything was watched."""
        ends = [self.ended_seconds]
        ends += [rows[-1].at_seconds for rows in (self.samples, self.scrapes) if rows]
        if self.load is not None:
            ends.append(self.load.duration_seconds)
        return max(ends)
