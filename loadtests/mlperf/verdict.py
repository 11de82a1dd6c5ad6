"""The validity of a run in MLPerf, and its result there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from exporter.settings import Settings
from loadtests.mlperf import early_stopping

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Scenario = Literal["SingleStream", "MultiStream", "Server", "Offline"]
CAVEAT = (
    "early stopping takes queries for independent (iid); near saturation they are not, "
    "and it claims too much"
)


class Verdict(Settings):
    """LoadGen's checks of one run."""

    scenario: Scenario
    """The scenario."""
    valid: bool
    """All checks below hold."""
    result: float
    """What MLPerf reports: seconds for the streams, queries or samples a second else."""
    unit: str
    """The unit of `result`."""
    queries: int
    """Queries answered or lost."""
    percentile_seconds: float | None
    """The latency at the scenario's percentile, as LoadGen ranks it."""
    min_duration_met: bool
    """The run was long enough."""
    min_queries_met: bool
    """There were enough queries."""
    constraints_met: bool
    """Server: the percentile is within its limit."""
    early_stopping_met: bool
    """There are enough queries for the percentile at 99 % confidence, if iid."""
    early_stopping_seconds: float | None = None
    """The streams: early stopping's estimate of the percentile."""
    caveat: str = CAVEAT
    """How far to trust it."""


def ranked(latencies: Floats, percentile: float) -> float | None:
    """LoadGen's percentile: the latency of rank floor(N p), counted from 0."""
    if not latencies.size:
        return None
    return float(np.sort(latencies)[int(latencies.size * percentile)])


def server(
    latencies: Floats,
    scheduled: Floats,
    *,
    limit_seconds: float,
    percentile: float,
    least_seconds: float,
    least_queries: int,
) -> Verdict:
    """The Server scenario.

    `latencies` (N,) count from the scheduled time, infinite where no answer came;
    `scheduled` (N,) are seconds from the start.
    """
    at = ranked(latencies, percentile)
    duration = bool(scheduled.size and scheduled[-1] >= least_seconds)
    queries = latencies.size >= least_queries
    constraints = at is not None and at <= limit_seconds
    early = early_stopping.holds(latencies, limit_seconds, percentile)
    last = float(scheduled[-1]) if scheduled.size else 0.0
    return Verdict(
        scenario="Server",
        valid=duration and queries and constraints and early,
        result=(latencies.size - 1) / last if last > 0 else 0.0,
        unit="queries/s",
        queries=latencies.size,
        percentile_seconds=at if at is not None and np.isfinite(at) else None,
        min_duration_met=duration,
        min_queries_met=queries,
        constraints_met=constraints,
        early_stopping_met=early,
    )


def stream(
    latencies: Floats,
    *,
    scenario: Literal["SingleStream", "MultiStream"],
    percentile: float,
    last_issued_seconds: float,
    least_seconds: float,
    least_queries: int,
) -> Verdict:
    """SingleStream (p90) and MultiStream (p99 of 8 samples): one query at a time."""
    found = early_stopping.estimate(latencies, percentile)
    duration = last_issued_seconds >= least_seconds
    queries = latencies.size >= least_queries
    known = found is not None and np.isfinite(found)
    at = ranked(latencies, percentile)
    return Verdict(
        scenario=scenario,
        valid=duration and queries and known,
        result=found if found is not None and known else 0.0,
        unit="seconds",
        queries=latencies.size,
        percentile_seconds=at if at is not None and np.isfinite(at) else None,
        min_duration_met=duration,
        min_queries_met=queries,
        constraints_met=True,
        early_stopping_met=found is not None,
        early_stopping_seconds=found if known else None,
    )


def offline(
    samples: int,
    last_done_seconds: float,
    *,
    least_seconds: float,
    least_samples: int,
) -> Verdict:
    """Offline: everything at once, and samples a second until the last is done."""
    duration = last_done_seconds >= least_seconds
    enough = samples >= least_samples
    return Verdict(
        scenario="Offline",
        valid=duration and enough,
        result=samples / last_done_seconds if last_done_seconds > 0 else 0.0,
        unit="samples/s",
        queries=1,
        percentile_seconds=None,
        min_duration_met=duration,
        min_queries_met=enough,
        constraints_met=True,
        early_stopping_met=True,
    )
