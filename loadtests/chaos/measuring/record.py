"""Records events of an experiment as they happen, from several threads."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.measuring.evidence import (
    AlertChange,
    Check,
    Event,
    Evidence,
    Sample,
    Scrape,
    Step,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeVar

    from loadtests.chaos.measuring.evidence import Phase, Status, What
    from loadtests.result import RunResult

    Timed = TypeVar("Timed", Event, Step, Check, Sample, AlertChange, Scrape)

MAX_ROWS: Final = 500_000
"""Of each kind; what is beyond is dropped, and said."""


@dataclass
class Record:
    """The notes of one repetition.

    Every time is an instant of perf_counter until the evidence is made, when the load's
    start is known.
    """

    phase: Phase = "before"
    """In which the experiment is; set by the runner."""
    events: list[Event] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    alerts: list[AlertChange] = field(default_factory=list)
    scrapes: list[Scrape] = field(default_factory=list)
    alerts_watched: bool = False
    problems: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)
    began_at: float = field(default_factory=time.time)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(
        self, what: What, detail: Mapping[str, Any], at: float | None = None
    ) -> None:
        """Something happened now, or at an instant of perf_counter."""
        self.add(
            self.events, Event(time.perf_counter() if at is None else at, what, detail)
        )

    def remark(self, text: str) -> None:
        """Something worth knowing, told once; it speaks against nothing."""
        with self._lock:
            known = any(event.detail.get("text") == text for event in self.events)
        if not known:
            self.note("note", {"text": text})

    def problem(self, text: str) -> None:
        """Something that fails the experiment; told once."""
        with self._lock:
            if text not in self.problems:
                self.problems.append(text)

    def add(self, rows: list[Timed], row: Timed) -> None:
        """One more of a kind."""
        with self._lock:
            if len(rows) < MAX_ROWS:
                rows.append(row)
                return
        self.problem(
            f"more than {MAX_ROWS} {type(row).__name__} rows; no more are kept"
        )

    def evidence(
        self,
        document: Mapping[str, Any],
        *,
        origin: float | None,
        status: Status,
        load: RunResult | None,
        repetition: int,
        strength: float | None,
        ended: float,
    ) -> Evidence:
        """All of it, in seconds from `origin`, the load's start."""
        start = self.began if origin is None else origin
        started_at = self.began_at + (start - self.began)
        with self._lock:
            return Evidence(
                experiment=document,
                started_at=started_at if load is None else load.about.started_at,
                ended_seconds=ended - start,
                status=status,
                load=load,
                repetition=repetition,
                strength=strength,
                events=_from(start, self.events),
                steps=_from(start, self.steps),
                checks=_from(start, self.checks),
                samples=_from(start, self.samples),
                alerts=_from(start, self.alerts),
                alerts_watched=self.alerts_watched,
                scrapes=_from(start, self.scrapes),
                leftovers=tuple(self.leftovers),
                problems=tuple(self.problems),
                versions=dict(self.versions),
            )


def _from(start: float, rows: Iterable[Timed]) -> tuple[Timed, ...]:
    moved = (replace(row, at_seconds=row.at_seconds - start) for row in rows)
    return tuple(sorted(moved, key=lambda row: row.at_seconds))
