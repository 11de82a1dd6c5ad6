"""Reports of load and chaos runs: active runs, and capacities, also from a search's JSON.

An active run reports again every few seconds; one that stops reporting is dropped.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import Field, model_validator

from exporter.errors import UnusableFileError
from exporter.settings import Settings
from exporter.system import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
        self._capacities: dict[tuple[str, str], _Held[CapacityNotice]] = {}

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
            if notice.verdict == "valid":
                found_at = notice.found_at or self._wall_clock()
                found = notice.model_copy(update={"found_at": found_at})
                self._capacities[key] = _Held(found, expires, sender)
            elif notice.verdict == "no_rate_holds":
                self._capacities.pop(key, None)

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

    def capacities(self) -> list[CapacityNotice]:
        """The latest valid capacity for each model and objective, with its time."""
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


FORMAT: Final = "tritonwatch-load-capacity"
_MAX_BYTES: Final = 16 << 20
_MAX_REASON: Final = 200
_FINDINGS: Final = ("no_rate_holds", "every_rate_holds")


def notice_of(report: Mapping[str, Any]) -> CapacityNotice:
    """The result of a search: a capacity, or the reason why there is none.

    Raises:
        KeyError, TypeError, ValueError: the report is incomplete.
    """
    common = {"model": report["model"], "slo": report["slo"]}
    conclusion = str(report.get("conclusion", ""))
    if not report["valid"]:
        reason = "; ".join(report.get("reasons", ())) or conclusion
        return _without_capacity(common, "invalid", reason)
    if report.get("ending") in _FINDINGS:
        return _without_capacity(common, report["ending"], conclusion)
    if report["capacity"] is None:
        return _without_capacity(common, "invalid", conclusion)
    ends = report["capacity"]["requests_per_second"]
    if ends["low"] is None or ends["high"] is None:
        return _without_capacity(common, "invalid", conclusion)
    found_at = None
    if "started_at" in report:
        found_at = float(report["started_at"]) + float(report["spent_seconds"])
    return CapacityNotice(
        **common,
        requests_per_second=ends["estimate"],
        low=ends["low"],
        high=ends["high"],
        effective_requests=report["capacity"].get("effective_requests"),
        found_at=found_at,
    )


def valid_capacity(file: str) -> CapacityNotice:
    """The capacity in the report `file`.

    Raises:
        ValueError: the file cannot be read, is not a capacity report, or has no valid capacity.
    """
    try:
        report = json.loads(whole_file.read(Path(file), _MAX_BYTES))
    except OSError as error:
        raise ValueError(f"cannot read {file!r}: {error.strerror}") from None
    except UnusableFileError as error:
        raise ValueError(f"cannot read {file!r}: {error}") from None
    except (RecursionError, ValueError):
        raise ValueError(f"{file!r} is not valid JSON") from None
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise ValueError(
            f"{file!r} is not a capacity report; want a file written by `tritonwatch "
            "load capacity --json FILE`"
        )
    try:
        notice = notice_of(report)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{file!r} is an incomplete capacity report: {error!r}"
        ) from None
    if notice.verdict != "valid":
        raise ValueError(
            f"{file!r} has no valid capacity ({notice.reason}); repeat the search"
        )
    return notice


def _without_capacity(
    common: dict[str, Any], verdict: Any, reason: str
) -> CapacityNotice:
    if len(reason) > _MAX_REASON:
        reason = reason[: _MAX_REASON - 1] + "…"
    return CapacityNotice(**common, verdict=verdict, reason=reason)
