"""Reports of load and chaos runs: the active ones, and the capacities they found.

An active run reports again every few seconds; one that stops reporting is dropped.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import Field, model_validator

from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_RUNS: Final = 50
MAX_CAPACITIES: Final = 500
Label = Annotated[str, Field(min_length=1, max_length=200)]


class RunNotice(Settings):
    """POST /v1/runs: a run starts, continues, or ends."""

    run: Label
    """Its name, unique for every run."""
    kind: Literal["load", "capacity", "chaos"]
    profile: Label
    """The load profile, or the experiment."""
    phase: Label
    """Its current phase."""
    ttl_seconds: float = Field(default=30.0, gt=0, le=3600)
    """Time without a report after which the run counts as over."""
    ended: bool = False
    """True in the last report of the run."""


Verdict = Literal["valid", "invalid", "no_rate_holds", "every_rate_holds"]


class CapacityNotice(Settings):
    """POST /v1/capacity: the result of a capacity search, whether or not it is valid."""

    model: Label
    slo: Label
    verdict: Verdict = "valid"
    """Only a valid result is published as a capacity."""
    reason: str = Field(default="", max_length=200)
    """Reason why there is no capacity to publish."""
    requests_per_second: float | None = Field(default=None, gt=0)
    """Required where the verdict is valid, else ignored; so are `low` and `high`."""
    low: float | None = Field(default=None, gt=0)
    """The lower end of the 95 % interval."""
    high: float | None = Field(default=None, gt=0)
    """Its upper end."""
    effective_requests: float | None = Field(default=None, gt=0)
    """Number of independent requests that give an interval of the same width."""
    found_at: float | None = Field(default=None, gt=0)
    """Unix time at which the search ended; default: when the notice arrives."""
    ttl_seconds: float = Field(default=30 * 86_400.0, gt=0, le=366 * 86_400)
    """Time after which the notice is dropped."""

    @model_validator(mode="after")
    def _is_whole(self) -> CapacityNotice:
        missing = [
            name
            for name in ("requests_per_second", "low", "high")
            if self.verdict == "valid" and getattr(self, name) is None
        ]
        if missing:
            raise ValueError(f"a valid capacity needs {' and '.join(missing)}")
        return self


@dataclass(frozen=True, slots=True)
class FoundCapacity:
    """The capacity of a valid search."""

    model: str
    slo: str
    requests_per_second: float
    low: float
    high: float
    found_at: float
    """Unix time."""
    effective_requests: float | None


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Held(Generic[_T]):
    value: _T
    expires: float
    sender: str


class RunBoard:
    """The latest notices, bounded. Thread-safe. `clock` is monotonic seconds."""

    def __init__(
        self,
        clock: Callable[[], float],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._runs: dict[str, _Held[RunNotice]] = {}
        self._searches: dict[tuple[str, str], _Held[CapacityNotice]] = {}
        self._capacities: dict[tuple[str, str], _Held[FoundCapacity]] = {}

    def note_run(self, notice: RunNotice, sender: str = "") -> None:
        """Keep it; above the limit, drop the oldest of the sender that has most."""
        now = self._clock()
        with self._lock:
            self._expire(now)
            # Added again, it is the latest.
            self._runs.pop(notice.run, None)
            if not notice.ended:
                if len(self._runs) >= MAX_RUNS:
                    del self._runs[_oldest_of_largest_sender(self._runs)]
                held = _Held(notice, now + notice.ttl_seconds, sender)
                self._runs[notice.run] = held

    def note_capacity(self, notice: CapacityNotice, sender: str = "") -> None:
        """Keep it; above the limit, drop the oldest of the sender that has most.

        A valid result replaces the capacity, "no rate holds" removes it, any other
        leaves the previous one.
        """
        now = self._clock()
        key = (notice.model, notice.slo)
        with self._lock:
            self._expire(now)
            known: dict[tuple[str, str], _Held[Any]]
            known = {**self._searches, **self._capacities}
            if key not in known and len(known) >= MAX_CAPACITIES:
                leaving = _oldest_of_largest_sender(known)
                self._searches.pop(leaving, None)
                self._capacities.pop(leaving, None)
            expires = now + notice.ttl_seconds
            self._searches.pop(key, None)
            self._searches[key] = _Held(notice, expires, sender)
            found = self._found(notice)
            if found is not None:
                self._capacities[key] = _Held(found, expires, sender)
            elif notice.verdict == "no_rate_holds":
                self._capacities.pop(key, None)

    def _found(self, notice: CapacityNotice) -> FoundCapacity | None:
        rate, low, high = notice.requests_per_second, notice.low, notice.high
        if notice.verdict != "valid" or rate is None or low is None or high is None:
            return None
        found_at = notice.found_at or self._wall_clock()
        return FoundCapacity(
            notice.model,
            notice.slo,
            rate,
            low,
            high,
            found_at,
            notice.effective_requests,
        )

    def runs(self) -> list[RunNotice]:
        """The active runs."""
        with self._lock:
            self._expire(self._clock())
            return [held.value for held in self._runs.values()]

    def searches(self) -> list[CapacityNotice]:
        """The latest result for each model and objective, valid or not."""
        with self._lock:
            self._expire(self._clock())
            return [held.value for held in self._searches.values()]

    def capacities(self) -> list[FoundCapacity]:
        """The latest valid capacity for each model and objective."""
        with self._lock:
            self._expire(self._clock())
            return [held.value for held in self._capacities.values()]

    def _expire(self, now: float) -> None:
        self._runs = _unexpired(self._runs, now)
        self._searches = _unexpired(self._searches, now)
        self._capacities = _unexpired(self._capacities, now)


_K = TypeVar("_K")


def _oldest_of_largest_sender(held: dict[_K, _Held[Any]]) -> _K:
    """The oldest entry of the sender that has most of them."""
    numbers = Counter(entry.sender for entry in held.values())
    return next(
        k for k, e in held.items() if numbers[e.sender] == max(numbers.values())
    )


def _unexpired(held: dict[_K, _Held[_T]], now: float) -> dict[_K, _Held[_T]]:
    return {key: entry for key, entry in held.items() if entry.expires > now}
