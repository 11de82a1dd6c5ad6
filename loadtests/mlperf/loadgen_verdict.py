"""LoadGen's verdict on a run: duration, queries, percentile and early stopping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError
from scipy import special

from exporter.settings import Settings
from loadtests.profiles.mlperf import (
    MlperfMultiStream,
    MlperfOffline,
    MlperfServer,
    MlperfSingleStream,
)
from loadtests.result import Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    from loadtests.result import RunResult

CONFIDENCE: Final = 0.99
Scenario = Literal["SingleStream", "MultiStream", "Server", "Offline"]
CAVEAT = (
    "early stopping takes queries for independent (iid); near saturation they are not, "
    "and it claims too much"
)
_SCENARIOS = TypeAdapter[
    MlperfServer | MlperfSingleStream | MlperfMultiStream | MlperfOffline
](MlperfServer | MlperfSingleStream | MlperfMultiStream | MlperfOffline)


def least_passing(misses: int, percentile: float) -> int:
    """Return the minimum of queries in time that shows the percentile, with these misses."""
    low, high = 0, 1
    while not _shown(high, misses, percentile):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if _shown(middle, misses, percentile):
            high = middle
        else:
            low = middle
    return high


def least_queries(misses: int, percentile: float) -> int:
    """Return the number of queries that a run with these misses needs."""
    return least_passing(misses, percentile) + misses


def _shown(in_time: int, misses: int, percentile: float) -> bool:
    odds = special.betainc(in_time, misses + 1, percentile)
    return bool(odds < 1.0 - CONFIDENCE)


def most_misses(queries: int, percentile: float) -> int | None:
    """Return the maximum of misses that these queries allow; None where 0 is too many."""
    if queries < least_queries(0, percentile):
        return None
    low, high = 0, queries
    while high - low > 1:
        middle = (low + high) // 2
        if least_queries(middle, percentile) <= queries:
            low = middle
        else:
            high = middle
    return low


def holds(latencies: NDArray[np.float64], limit: float, percentile: float) -> bool:
    """The Server scenario: whether enough queries were in time.

    `latencies` (N,) seconds; those above `limit` are misses.
    """
    misses = int(np.count_nonzero(latencies > limit))
    return latencies.size >= least_queries(misses, percentile)


def estimate(latencies: NDArray[np.float64], percentile: float) -> float | None:
    """SingleStream and MultiStream: a latency that is above the percentile.

    With 99 % confidence, for independent queries. The t-th largest of `latencies` (N,)
    for the largest t >= 1 for which N queries are enough for t misses; None with fewer
    than one miss needs.
    """
    count = latencies.size
    t = most_misses(count, percentile)
    if not t:
        return None
    return float(np.partition(latencies, count - t)[count - t])


class Verdict(Settings):
    """LoadGen's checks of one run."""

    scenario: Scenario
    """The scenario."""
    valid: bool
    """True if all checks below hold."""
    result: float
    """MLPerf's result: seconds for the streams, else queries or samples per second."""
    unit: str
    """The unit of `result`."""
    queries: int
    """Queries answered or lost."""
    percentile_seconds: float | None
    """The latency at the scenario's percentile, as LoadGen ranks it."""
    min_duration_met: bool
    """The run was long enough."""
    min_queries_met: bool
    """True if there were enough queries."""
    constraints_met: bool
    """Server: the percentile is within its limit."""
    early_stopping_met: bool
    """True if there were enough queries for the percentile at 99 % confidence, if iid."""
    early_stopping_seconds: float | None = None
    """The streams: early stopping's estimate of the percentile."""
    caveat: str = CAVEAT
    """Limits of its validity."""


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
    early = holds(latencies, limit_seconds, percentile)
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
    found = estimate(latencies, percentile)
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


def judged(result: RunResult) -> Verdict | None:
    """The verdict; None for a run of another profile."""
    try:
        profile = _SCENARIOS.validate_python(dict(result.about.profile))
    except ValidationError:
        return None
    requests = result.requests
    right = requests.outcome == Outcome.OK
    late = np.where(right, requests.done - requests.intended, np.inf)
    if isinstance(profile, MlperfServer):
        return server(
            late,
            requests.intended,
            limit_seconds=profile.limit_seconds,
            percentile=profile.percentile,
            least_seconds=profile.least_seconds,
            least_queries=profile.least_queries,
        )
    if isinstance(profile, MlperfOffline):
        return offline(
            requests.count(Outcome.OK),
            float(np.nanmax(requests.done, initial=0.0)),
            least_seconds=profile.least_seconds,
            least_samples=profile.samples,
        )
    multiple = isinstance(profile, MlperfMultiStream)
    return stream(
        late,
        scenario="MultiStream" if multiple else "SingleStream",
        percentile=profile.percentile,
        last_issued_seconds=float(np.nanmax(requests.sent, initial=0.0)),
        least_seconds=profile.least_seconds,
        least_queries=profile.least_queries,
    )
