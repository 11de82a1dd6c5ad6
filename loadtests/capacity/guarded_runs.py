"""Runs at a rate: guarded, measured at sender and server, and cut into blocks."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.capacity.observation import Observation, observation, settled_alike
from loadtests.capacity.server_side import Phases, ServerSide, phases
from loadtests.engine import Options, run_closed, run_open
from loadtests.machine_guard import Guard, GuardLimits, Watch
from loadtests.profiles.profile import arrivals_of
from loadtests.profiles.rate_profiles import Poisson
from loadtests.result import Outcome
from pages.units import percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.triton.protocol_types import ModelStatistics
    from loadtests.load_objective import Slo
    from loadtests.plan import Mix
    from loadtests.result import Floats, RunResult
    from loadtests.scenario import Scenario
    from loadtests.target import Target

_PATIENCE: Final = 4.0  # times the limit; later answers are late in any case
_LEAST_TIMEOUT: Final = 1.0
_QUIET_SECONDS: Final = 3.0
_QUIET: Final = 2.0  # times the unloaded latency
_MOST_REJECTED: Final = 3


@dataclass(frozen=True, slots=True)
class Record:
    """One run."""

    observation: Observation
    latencies: Floats
    """(N,) seconds from the intended send after the warm-up; infinite for misses."""
    due: Floats
    """(N,) when those were due."""
    throughput: float
    seconds: float
    """Time from the start to the end of the schedule."""
    phases: Phases | None
    watch: Watch
    reasons: tuple[str, ...]

    def settled(self, observation: Observation) -> Record:
        """Return the record without the warm-up that `observation` leaves out."""
        start = observation.warmup_seconds
        kept = self.due >= start
        due, latencies = self.due[kept], self.latencies[kept]
        ended = self.due + self.latencies
        return replace(
            self,
            observation=observation,
            latencies=latencies,
            due=due,
            throughput=_throughput(ended, start, self.seconds),
        )


def _throughput(ended: Floats, start: float, end: float) -> float:
    """Return correct answers per second between two times; an infinite `ended` (N,) is a miss."""
    return float(((ended >= start) & (ended < end)).sum()) / (end - start)


@dataclass(slots=True)
class Bench:
    """One server, one mix and one objective, measured again and again."""

    scenario: Scenario
    """Its objective is the one of the search; its profile is not used."""
    mix: Mix
    limits: GuardLimits
    log: Callable[[str], None]
    stopped: Callable[[], bool]
    enter: Callable[[str], None] = lambda _: None
    """Called with the name of each step, for announcements."""
    records: list[Record] = field(default_factory=list)
    rejected: list[Record] = field(default_factory=list)
    unloaded_p50: float = math.inf
    """Median latency of one request at a time, once known."""
    target: Target = field(init=False)
    slo: Slo = field(init=False)
    server: ServerSide = field(init=False)
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def __post_init__(self) -> None:
        slo = self.scenario.objective()
        assert slo is not None  # noqa: S101 - the command requires one
        self.slo, self.target = slo, self.scenario.target.target()
        self.server = ServerSide(
            self.target,
            frozenset(entry.spec.name for entry in self.mix.entries),
            streamed=any(entry.style == "stream" for entry in self.mix.entries),
        )

    @property
    def schedule_sha256(self) -> str:
        """SHA-256 of all arrival times so far, in order."""
        return self._digest.hexdigest()

    def alone(self, seconds: float, index: int) -> RunResult:
        """Send one request at a time, for the unloaded latency."""
        options = Options(
            timeout_seconds=self._timeout(),
            seed=self.scenario.seed + index,
            stop=self.stopped,
        )
        return run_closed(
            self.target,
            self.mix,
            concurrency=1,
            duration_seconds=seconds,
            options=options,
        )

    def quiet(self, rate: float, seconds: float, index: int) -> bool:
        """Return True if the median latency at a rate is near that of an unloaded server.

        The run is not used for anything else.
        """
        result = self._sent(rate, seconds, index)
        self._quieten()
        return self._unloaded(result)

    def measure(self, rate: float, seconds: float, index: int) -> Observation | None:
        """Make a Poisson run at a rate; None where it was disturbed and has to be repeated."""
        record = self._record(rate, seconds, index)
        self._quieten()
        if record.reasons and len(self.rejected) < _MOST_REJECTED:
            self.rejected.append(record)
            self.log(f"{rate:.4g}/s rejected: {'; '.join(record.reasons)}")
            return None
        self.records.append(record)
        shares = ", ".join(
            f"{percent(share)} miss {term.text}"
            for share, term in zip(
                record.observation.shares, self.slo.terms, strict=True
            )
        )
        self.log(f"{rate:.4g}/s for {seconds:g} s: {shares}")
        return record.observation

    def _record(self, rate: float, seconds: float, index: int) -> Record:
        before = self.server.statistics()
        with Guard(self.target, self.limits) as guard:
            result = self._sent(rate, seconds, index)
        after = self.server.statistics()
        return self._of(rate, seconds, result, guard.watch(), (before, after))

    def _sent(self, rate: float, seconds: float, index: int) -> RunResult:
        profile = Poisson(requests_per_second=rate, duration_seconds=seconds)
        arrivals = arrivals_of(profile, self.scenario.seed * 100_003 + index)
        if not arrivals.size:
            arrivals = np.array([seconds / 2])
        self._digest.update(arrivals.tobytes())
        options = Options(
            timeout_seconds=self._timeout(),
            slo_seconds=self.slo.limit_seconds,
            seed=self.scenario.seed + index,
            stop=self.stopped,
            profile=profile.model_dump(mode="json"),
        )
        return run_open(
            self.target,
            self.mix,
            arrivals,
            in_flight=self.scenario.in_flight,
            options=options,
        )

    def _of(
        self,
        rate: float,
        seconds: float,
        result: RunResult,
        watch: Watch,
        statistics: tuple[list[ModelStatistics], list[ModelStatistics]],
    ) -> Record:
        requests = result.requests
        seen = observation(rate, requests, self.slo, seconds=seconds)
        kept = requests.where(requests.intended >= seen.warmup_seconds)
        ended = requests.done[requests.outcome == Outcome.OK]
        verdict = watch.verdict()
        return Record(
            observation=seen,
            latencies=kept.waits,
            due=kept.intended,
            throughput=_throughput(ended, seen.warmup_seconds, seconds),
            seconds=seconds,
            phases=phases(*statistics, seconds),
            watch=watch,
            reasons=result.verdict.reasons + verdict.reasons,
        )

    def settle(self) -> None:
        """Leave the warm-up out of all records, the same of each."""
        alike = settled_alike([record.observation for record in self.records])
        self.records = [
            record.settled(observation)
            for record, observation in zip(self.records, alike, strict=True)
        ]

    def _timeout(self) -> float:
        """Return the time after which an answer misses each term anyway.

        What ends a stream early also hides its first responses and gaps, so an
        objective of streams leaves the scenario's timeout.
        """
        limit = self.slo.whole_answer_seconds
        if limit is None:
            return self.scenario.timeout_seconds
        return min(
            self.scenario.timeout_seconds, max(_PATIENCE * limit, _LEAST_TIMEOUT)
        )

    def _quieten(self) -> None:
        """Wait until the server has emptied its queues after an overload."""
        end = time.monotonic() + _QUIET_SECONDS
        while time.monotonic() < end and not self.stopped():
            one = run_closed(
                self.target,
                self.mix,
                concurrency=1,
                duration_seconds=1.0,
                requests=3,
                options=Options(
                    timeout_seconds=self._timeout(), seed=self.scenario.seed
                ),
            )
            if self._unloaded(one):
                return

    def _unloaded(self, result: RunResult) -> bool:
        waited = result.quantile(0.5)
        return waited is not None and waited <= _QUIET * self.unloaded_p50 + 1e-3
