"""What load and chaos runs tell of themselves: which go on, and what capacity they found.

A run says again and again that it goes on; one that ended without a word is forgotten.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_RUNS: Final = 50
MAX_CAPACITIES: Final = 500
Label = Annotated[str, Field(min_length=1, max_length=200)]


class RunNotice(Settings):
    """POST /v1/runs: a run begins, goes on, or ends."""

    run: Label
    """Its name, different for every run."""
    kind: Literal["load", "capacity", "chaos"]
    profile: Label
    """The load profile, or the experiment."""
    phase: Label
    """The part of it that goes on now."""
    ttl_seconds: float = Field(default=30.0, gt=0, le=3600)
    """It is over when nothing is heard of it for so long."""
    ended: bool = False
    """It is over now."""


class CapacityNotice(Settings):
    """POST /v1/capacity: what a capacity search found. Replaces what was found before."""

    model: Label
    slo: Label
    requests_per_second: float = Field(gt=0)
    low: float = Field(gt=0)
    """The lower end of the 95 % interval."""
    high: float = Field(gt=0)
    """Its upper end."""
    ttl_seconds: float = Field(default=30 * 86_400.0, gt=0, le=366 * 86_400)
    """How long it is believed."""


@dataclass(frozen=True, slots=True)
class _Held:
    notice: RunNotice | CapacityNotice
    expires: float


class RunBoard:
    """The latest notices, bounded. Thread-safe. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, _Held] = {}
        self._capacities: dict[tuple[str, str], _Held] = {}

    def note_run(self, notice: RunNotice) -> bool:
        """Keep it; False where there are too many runs already."""
        now = self._clock()
        with self._lock:
            self._expire(now)
            if notice.ended:
                self._runs.pop(notice.run, None)
            elif notice.run in self._runs or len(self._runs) < MAX_RUNS:
                self._runs[notice.run] = _Held(notice, now + notice.ttl_seconds)
            else:
                return False
        return True

    def note_capacity(self, notice: CapacityNotice) -> bool:
        """Keep it; False where there are too many already."""
        now = self._clock()
        key = (notice.model, notice.slo)
        with self._lock:
            self._expire(now)
            if key not in self._capacities and len(self._capacities) >= MAX_CAPACITIES:
                return False
            self._capacities[key] = _Held(notice, now + notice.ttl_seconds)
        return True

    def runs(self) -> list[RunNotice]:
        """Those that go on now."""
        with self._lock:
            self._expire(self._clock())
            held = [entry.notice for entry in self._runs.values()]
        return [notice for notice in held if isinstance(notice, RunNotice)]

    def capacities(self) -> list[CapacityNotice]:
        """Those believed now."""
        with self._lock:
            self._expire(self._clock())
            held = [entry.notice for entry in self._capacities.values()]
        return [notice for notice in held if isinstance(notice, CapacityNotice)]

    def _expire(self, now: float) -> None:
        self._runs = {k: h for k, h in self._runs.items() if h.expires > now}
        self._capacities = {
            k: h for k, h in self._capacities.items() if h.expires > now
        }
