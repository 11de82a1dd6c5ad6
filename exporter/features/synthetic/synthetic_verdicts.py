"""Evidence of one attempt: its duration, pace of streams, waiting sequences, cached answers."""

from __future__ import annotations

import contextlib
import math
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from exporter.access.probe_base import Verdict
from exporter.own_requests.payload import wider

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping

    from exporter.access.inventory import ModelKey
    from exporter.access.probe_base import Target
    from exporter.access.work_board import WorkSnapshot
    from exporter.own_requests.execution_evidence import Reading, Watched
    from exporter.own_requests.payload import InputSettings
    from exporter.triton.protocol_types import InferReply, ModelSpec

_REFUSALS: Final = frozenset({"invalid", "model_error", "bad_output", "timeout"})
"""Outcomes that larger inputs may cause by themselves."""
_TAKEN: Final = frozenset({"ok", "stalled", "bad_output"})
"""Outcomes of a model that took the inputs."""
_ANSWERS: Final = _TAKEN | {"cached", "invalid", "model_error", "configuration"}
"""Outcomes after which no request of ours can be waiting."""
_NO_SUCH_MODEL: Final = ("NOT_FOUND:", "HTTP 404:", "HTTP 405:")
"""Beginnings of refusals that are not of the inputs."""
_RETRY_SECONDS: Final = 3600.0
_OTHERS_SECONDS: Final = 600.0
"""Time for which a success of another client shows that a model serves."""


@dataclass(slots=True)
class _Known:
    spec: ModelSpec
    is_cached: bool = field(default=False)
    is_proven: bool = field(default=False)
    """The model answered larger inputs correctly; from then on a failure is its own."""
    refused_until: float = field(default=0.0)
    has_taken: bool = field(default=False)
    """The model took inputs of the usual size; from then on a refusal is its own failure."""
    production: int | None = field(default=None)
    """Inferences of production at the latest refusal."""
    others_at: float = field(default=-math.inf)
    """When a refusal last found that production had inferences since the one before."""


class TriedInputs:
    """Decides by model how large the inputs are, and what a refusal of them means.

    Generated inputs may be none that a model takes: a word is no JPEG. So the refusal of
    inputs that it never took shows nothing if the model calls them invalid, or if it
    serves other clients meanwhile.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._models: dict[ModelKey, _Known] = {}

    def keep(self, keys: Collection[ModelKey]) -> None:
        """Forget every model that is not among `keys`."""
        with self._lock:
            for key in self._models.keys() - set(keys):
                del self._models[key]

    def inputs(
        self, spec: ModelSpec, overrides: Mapping[str, InputSettings]
    ) -> dict[str, InputSettings] | None:
        """Return settings of larger inputs for the next request, or None for the usual."""
        with self._lock:
            known = self._of(spec)
            is_due = known.is_cached and self._clock() >= known.refused_until
        return wider(spec, overrides) if is_due else None

    def judged(
        self,
        spec: ModelSpec,
        verdict: Verdict,
        production: int | None,
        *,
        is_wider: bool,
    ) -> Verdict:
        """Return the verdict on one request, and remember what it shows.

        `production` is the model's number of production inferences so far, None where
        it is unknown, or where failures may be among them. Larger inputs that the model
        has never answered are left for an hour after a failure.
        """
        with self._lock:
            known = self._of(spec)
            if not is_wider:
                return self._usual(known, verdict, production)
            if verdict.outcome == "ok":
                known.is_proven = True
            elif verdict.outcome in _REFUSALS and not known.is_proven:
                known.refused_until = self._clock() + _RETRY_SECONDS
                detail = (
                    "unproven: a response cache answered, and larger inputs, which it "
                    f"does not know, failed: {verdict.detail}; give the probe more input "
                    "values with `overrides`"
                )
                return replace(
                    verdict, outcome="cached", duration_seconds=None, detail=detail
                )
        return verdict

    def _usual(
        self, known: _Known, verdict: Verdict, production: int | None
    ) -> Verdict:
        known.is_cached |= verdict.outcome == "cached"
        known.has_taken |= verdict.outcome in _TAKEN
        is_refused = verdict.outcome in {"invalid", "model_error"}
        if (
            known.has_taken
            or not is_refused
            or verdict.detail.startswith(_NO_SUCH_MODEL)
        ):
            return verdict
        now, before, known.production = self._clock(), known.production, production
        if before is not None and production is not None and production > before:
            known.others_at = now
        serves_others = now - known.others_at <= _OTHERS_SECONDS
        if verdict.outcome == "model_error" and not serves_others:
            return verdict
        others = ", and answers other clients" if serves_others else ""
        detail = (
            f"the model refuses generated inputs{others}: {verdict.detail}; give it some "
            "that it takes with `overrides`"
        )
        return replace(
            verdict, outcome="configuration", duration_seconds=None, detail=detail
        )

    def _of(self, spec: ModelSpec) -> _Known:
        key = spec.key
        known = self._models.get(key)
        if known is None or known.spec != spec:
            known = self._models[key] = _Known(spec)
        return known


class Pace(NamedTuple):
    """Longest times to a stream's first response and between two responses; None: no limit."""

    first_seconds: float | None
    gap_seconds: float | None


def pace_verdict(pace: Pace, reply: InferReply, request_id: str) -> Verdict:
    """Return the verdict on an answer that is valid: ok, or stalled."""
    first, (gap, number) = reply.first_response_seconds, reply.longest_gap
    found = []
    if first is not None and pace.first_seconds is not None:
        text = f"the first response came after {first:.3f} s"
        found.append((first - pace.first_seconds, pace.first_seconds, text))
    if pace.gap_seconds is not None:
        text = f"response {number} came {gap:.3f} s after the one before it"
        found.append((gap - pace.gap_seconds, pace.gap_seconds, text))
    over, allowed, text = max(found, default=(0.0, 0.0, ""))
    if over <= 0:
        return Verdict("ok", reply.duration_seconds, request_id)
    return Verdict(
        "stalled",
        reply.duration_seconds,
        request_id,
        f"{text}; allowed are {allowed:g} s",
        over_seconds=over,
    )


_MOST_SKIPPED: Final = 64
_WORKING: Final = 0.5
"""Minimum busy share of the time for an engine that reports it to count as working."""


class Backlog:
    """Own requests that wait in vain, and whether a model works for others meanwhile.

    Triton executes requests that were given up, so those of a model that is slower than
    the timeout would accumulate: after each timeout, requests are sent less often. Its
    first execution since then, also of a request that was given up, shows that it may
    have recovered: one request is sent at once. And while other clients hold all slots
    of a sequence model, or its queue is long, a probe waits however well the model is.
    Executions that go up show that it runs. If an engine reports its own times, these have
    to go up, too: Triton counts its requests as soon as they are released, even if the
    engine hangs before it answers them.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._executions: dict[ModelKey, int] = {}
        self._rose_at: dict[ModelKey, float] = {}
        self._first_timeout_at: float | None = None
        self._inferences: int | None = None
        self._work_at = self._served_at = -math.inf
        self._rises: tuple[float, ...] = ()
        self._busy_seconds: float | None = None
        self._has_run = False
        """True if the model was executed since the latest request, for anybody."""
        self._may_hurry = False
        """True until a request was sent early since the latest one in turn."""
        self._skips = 0
        self._skips_left = 0

    @property
    def waits(self) -> bool:
        """True after a timeout, until the model answers."""
        return self._first_timeout_at is not None

    def add(self, reading: Reading, watched: Watched, now: float) -> None:
        """Record a reading of the statistics, made at `now` in monotonic seconds."""
        for key in watched.sequences:
            count = reading.executions(key)
            if count > self._executions.get(key, count):
                self._rose_at[key] = now
            self._executions[key] = count

    def moves(self, watched: Watched, now: float) -> bool:
        """Return whether all of them were executed within the window.

        A sequence keeps its slot while its client pauses, so the window begins once Triton
        would have ended it.
        """
        return all(
            key in self._rose_at
            and now - self._rose_at[key] <= self._window_seconds + idle_seconds
            for key, idle_seconds in watched.sequences.items()
        )

    def add_work(self, key: ModelKey, work: WorkSnapshot | None) -> None:
        """Record what the model has done so far."""
        before_at = self._work_at
        if work is None or work.at <= before_at:
            return
        self._work_at, known = work.at, work.models.get(key)
        count = None if known is None or known.is_doubtful else known.inferences
        before, self._inferences = self._inferences, count
        busy = None if known is None else known.busy_seconds
        was_busy, self._busy_seconds = self._busy_seconds, busy
        has_served = count is not None and before is not None and count > before
        if known is not None and known.is_busy_reported:
            worked = (busy or 0.0) - (was_busy or 0.0)
            has_served &= worked >= _WORKING * (work.at - before_at)
        if has_served:
            self._served_at = work.at
        since = self._first_timeout_at
        if since is None or before_at <= since:
            return
        self._has_run |= None not in (busy, was_busy) and busy != was_busy
        if has_served:
            self._rises = (*self._rises[-1:], work.at)

    def is_crowded(self, now: float) -> bool:
        """Return whether production had inferences within the window."""
        return now - self._served_at <= self._window_seconds

    def serves_others(self, now: float) -> bool:
        """Return whether production had inferences twice since the first timeout, and lately.

        One rise can be of requests that ended before that timeout. A model that takes
        long for each request has long pauses between two.
        """
        match self._rises:
            case earlier, later:
                longest = max(self._window_seconds, 2 * (later - earlier))
                return now - later <= min(longest, _OTHERS_SECONDS)
            case _:
                return False

    def note(self, verdict: Verdict, now: float) -> None:
        """Send less often after a timeout, at the normal rate after an answer.

        Nothing follows from a repeated verdict, nor from a request that did not reach the
        model or its queue, or whose answer was late because this process did not run.
        """
        if verdict.outcome in _ANSWERS:
            self._first_timeout_at = None
            self._rises = ()
            self._skips = self._skips_left = 0
        is_waiting = verdict.outcome in {"timeout", "backlog"}
        if verdict.is_repeated or not is_waiting or verdict.is_rejected:
            return
        if self._first_timeout_at is None:
            self._first_timeout_at = now
        self._skips = min(max(1, 2 * self._skips), _MOST_SKIPPED)
        self._skips_left = self._skips

    def hurry(self) -> None:
        """Send a request early, as after an execution: the whole server may have hung."""
        self._has_run = True

    def skips(self) -> bool:
        """Return whether this attempt sends nothing; counts down."""
        self._skips_left -= 1
        is_due = self._skips_left < 0
        if is_due or (self._has_run and self._may_hurry):
            self._has_run, self._may_hurry = False, is_due
            return False
        return True


REPEATED: Final = Verdict(
    "timeout",
    detail="an earlier request got no answer in time: the model is asked less often",
    is_repeated=True,
)
"""The verdict on a model that is not asked now."""


def behind(spec: ModelSpec, failed: Verdict) -> Verdict:
    """Return the verdict on a model that works for other clients, and not for a probe."""
    why = failed.detail if failed.is_rejected else "no answer in time"
    return replace(
        failed,
        outcome="backlog",
        duration_seconds=None,
        detail=f"{why}, but {spec.name} executes other clients' requests: it is slow, or "
        "the probe waits behind them",
    )


@dataclass(slots=True)
class _Flight:
    sent: float
    ended: float | None = None


class RequestFlights:
    """Times the latest request of each target, without the reads around it. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._flights: dict[Target, _Flight] = {}

    @contextlib.contextmanager
    def under_way(self, target: Target) -> Generator[None]:
        """Time what the block sends."""
        flight = self._flights[target] = _Flight(self._clock())
        try:
            yield
        finally:
            flight.ended = self._clock()

    def waited_seconds(self, target: Target) -> float:
        """Return how long the latest request has been or was under way; 0 without one."""
        flight = self._flights.get(target)
        if flight is None:
            return 0.0
        ended = flight.ended
        return (self._clock() if ended is None else ended) - flight.sent

    def forget(self, target: Target) -> None:
        """Forget the latest request."""
        self._flights.pop(target, None)

    def keep(self, models: Collection[ModelKey]) -> None:
        """Forget the ended requests to all other models."""
        for target, flight in list(self._flights.items()):
            if target.key not in models and flight.ended is not None:
                self.forget(target)
