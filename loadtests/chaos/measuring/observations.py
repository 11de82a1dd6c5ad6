"""The observations of an experiment: facts with their times, recorded as they happen.

All times are seconds from the start of the load, on the load's own clock, so that
requests, faults, checks, metrics and alerts share one time axis.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping  # noqa: TC003 - pydantic reads it for journals
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from exporter.settings import Settings
from loadtests import result_file
from loadtests.errors import PlanError
from loadtests.result import RunResult, UnixTime

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_ROWS: Final = 500_000
"""Limit of rows of each kind; further ones are dropped, which is reported."""
_MAX_OUTPUT_CHARACTERS: Final = 10_000
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
`reverted` those when it is verified to be in effect and to have ended."""
Status = Literal["completed", "failed", "aborted", "interrupted"]
"""Statuses of Chaos Toolkit's journal. A steady state that does not hold before the
method fails the experiment; one that does not hold later deviates, which is no status.
"""
NAME: Final = "tritonwatch"
"""Name of our extension of an experiment, and of our block of a journal."""
UP: Final = "up"
"""Prometheus' `up`: whether the sidecar was scraped, which shows that it is down."""
PROMETHEUS_UP: Final = "prometheus_up"
"""1 for each poll of Prometheus that was answered, else 0; not a series of the sidecar."""
AlertState = Literal["inactive", "pending", "firing"]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the experiment."""

    at_seconds: float
    what: What
    detail: Mapping[str, Any] = field(default_factory=dict)
    """For faults: `kind`, and their settings."""


@dataclass(frozen=True, slots=True)
class Step:
    """One activity of the method or of the rollbacks, as it ran."""

    at_seconds: float
    seconds: float
    part: Part
    activity: Mapping[str, Any]
    """The activity, as written in the experiment."""
    succeeded: bool
    output: Any = None
    problem: str | None = None
    """The error, in a sentence."""


@dataclass(frozen=True, slots=True)
class Check:
    """One evaluation of one probe of the steady-state hypothesis."""

    at_seconds: float
    phase: Phase
    probe: str
    """Name of the probe."""
    value: float | None
    """The value; None where it is unknown: no requests were sent meanwhile."""
    met: bool
    """True if it is within the tolerance; False for unknown values."""


class Series(Settings):
    """One series of the sidecar, polled every quarter of a second.

    A failed poll, an absent series and a value that is no number leave nothing; `up` alone
    has a value for each poll.
    """

    metric: str
    labels: dict[str, str]
    at_seconds: tuple[float, ...] = Field(min_length=1)
    values: tuple[float, ...]

    @model_validator(mode="after")
    def _has_a_value_for_each_time(self) -> Series:
        if len(self.values) != len(self.at_seconds):
            raise ValueError(
                f"found {len(self.values)} values at {len(self.at_seconds)} times"
            )
        return self


@dataclass(frozen=True, slots=True)
class AlertChange:
    """A change of state of an alert."""

    at_seconds: float
    name: str
    labels: Mapping[str, str]
    state: AlertState


def _load_of(value: Any) -> RunResult | None:
    """Return a load run, also from its form in a journal."""
    if value is None or isinstance(value, RunResult):
        return value
    try:
        return result_file.from_document(value)
    except PlanError as error:
        raise ValueError(str(error)) from None


if TYPE_CHECKING:
    LoadRun = RunResult | None
else:
    # A result is no pydantic model: these functions validate and serialise it.
    LoadRun = Annotated[
        Any,
        PlainValidator(_load_of),
        PlainSerializer(
            lambda load: None if load is None else result_file.to_document(load)
        ),
        WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "null"}]}),
    ]
"""A load run; in a journal as `tritonwatch load run --json` writes it."""


class Evidence(Settings):
    """One repetition of one experiment."""

    experiment: dict[str, Any] = Field(default={}, exclude=True)
    """The whole file of the experiment; a journal has it once."""
    started_at: UnixTime
    """Unix time of the load's start."""
    ended_seconds: float
    """End of the last rollback."""
    status: Status
    load: LoadRun
    """None where nothing was sent."""
    repetition: int = 0
    events: tuple[Event, ...] = ()
    steps: tuple[Step, ...] = ()
    checks: tuple[Check, ...] = ()
    series: tuple[Series, ...] = ()
    """Metrics of the sidecar; none without one."""
    alerts: tuple[AlertChange, ...] = ()
    alerts_watched: bool = False
    """True if a Prometheus with the shipped rules was polled to the end."""
    leftovers: tuple[str, ...] = ()
    """Remains of the faults on the host."""
    problems: tuple[str, ...] = ()
    """Other errors, in sentences."""
    versions: dict[str, str] = Field(default={})
    """Versions of the deployment: "triton", "tritonwatch", models by name."""

    @property
    def title(self) -> str:
        """Title of the experiment."""
        return str(self.experiment.get("title", ""))

    @property
    def seen_seconds(self) -> float:
        """Seconds until the last observation."""
        ends = [self.ended_seconds, *(one.at_seconds[-1] for one in self.series)]
        if self.load is not None:
            ends.append(self.load.duration_seconds)
        return max(ends)

    def of_metric(self, name: str) -> list[Series]:
        """Return the series of a metric."""
        return [one for one in self.series if one.metric == name]


_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
Row: TypeAlias = Event | Step | Check | AlertChange


class Record:
    """The observations of one repetition while it runs, from several threads.

    Every time is an instant of perf_counter until the evidence is made, when the load's
    start is known.
    """

    def __init__(self) -> None:
        self.phase: Phase = "before"
        """Phase of the experiment; set by the runner."""
        self.alerts_watched = False
        self.leftovers: list[str] = []
        self.versions: dict[str, str] = {}
        self._rows: dict[type[Row], list[Row]] = {}
        self._series: dict[_Key, tuple[list[float], list[float]]] = {}
        self._values = 0
        self._problems: list[str] = []
        self._began = time.perf_counter()
        self._began_at = time.time()
        self._lock = threading.Lock()

    def note(
        self, what: What, detail: Mapping[str, Any], at: float | None = None
    ) -> None:
        """Record an event of now, or of an instant of perf_counter."""
        self.add(Event(time.perf_counter() if at is None else at, what, detail))

    def remark(self, texts: Iterable[str]) -> None:
        """Record each remark once; they are not problems."""
        with self._lock:
            events = self._rows.get(Event, ())
            known = [e.detail.get("text") for e in events]  # type: ignore[union-attr]
        for text in dict.fromkeys(texts):
            if text not in known:
                self.note("note", {"text": text})

    def problem(self, text: str) -> None:
        """Record something that fails the experiment, once."""
        with self._lock:
            if text not in self._problems:
                self._problems.append(text)

    def add(self, row: Row) -> None:
        """Record a row."""
        with self._lock:
            rows = self._rows.setdefault(type(row), [])
            if len(rows) < MAX_ROWS:
                rows.append(row)
                return
        self._is_full(type(row).__name__)

    def value(
        self, at: float, metric: str, labels: Mapping[str, str], value: float
    ) -> None:
        """Record a value of a series."""
        if not math.isfinite(value):
            return
        with self._lock:
            if self._values < MAX_ROWS:
                self._values += 1
                key = metric, tuple(sorted(labels.items()))
                times, values = self._series.setdefault(key, ([], []))
                times.append(at)
                values.append(value)
                return
        self._is_full("metric")

    def _is_full(self, kind: str) -> None:
        self.problem(f"more than {MAX_ROWS} {kind} rows; the rest is dropped")

    def evidence(
        self,
        document: Mapping[str, Any],
        *,
        origin: float | None,
        load: RunResult | None,
        ended: float,
        **more: Any,
    ) -> Evidence:
        """Return all of it, in seconds from `origin`, the load's start.

        `more` has the fields of Evidence that are the runner's own.
        """
        start = self._began if origin is None else origin
        started_at = self._began_at + (start - self._began)
        with self._lock:
            rows: dict[str, Any] = {
                name: tuple(
                    sorted(
                        (
                            replace(row, at_seconds=row.at_seconds - start)
                            for row in self._rows.get(kind, ())
                        ),
                        key=lambda row: row.at_seconds,
                    )
                )
                for name, kind in _ROWS.items()
            }
            rows["series"] = tuple(
                Series(
                    metric=metric,
                    labels=dict(labels),
                    at_seconds=tuple(at - start for at in times),
                    values=tuple(values),
                )
                for (metric, labels), (times, values) in sorted(self._series.items())
            )
            rows["steps"] = [_plain(step) for step in rows["steps"]]
            return Evidence(
                experiment=as_json(document),
                started_at=started_at if load is None else load.about.started_at,
                ended_seconds=ended - start,
                load=load,
                alerts_watched=self.alerts_watched,
                leftovers=tuple(dict.fromkeys(self.leftovers)),
                problems=tuple(self._problems),
                versions=dict(self.versions),
                **rows,
                **more,
            )


def as_json(value: Any, most_characters: int | None = None) -> Any:
    """Return a value that JSON can hold: those of others may be of any type."""
    try:
        text = json.dumps(value, default=str)
    except (TypeError, ValueError):
        # Keys of another type, or a value that contains itself.
        text = json.dumps(repr(value))
    if most_characters is not None and len(text) > most_characters:
        return f"{text[:most_characters]}…"
    return json.loads(text, parse_constant=lambda _: None)


def _plain(step: Step) -> Step:
    return replace(
        step,
        activity=as_json(step.activity),
        output=as_json(step.output, _MAX_OUTPUT_CHARACTERS),
    )


_ROWS: Final[dict[str, type[Row]]] = {
    "events": Event,
    "steps": Step,
    "checks": Check,
    "alerts": AlertChange,
}
