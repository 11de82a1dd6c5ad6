"""The report of a load run: its published JSON, and the data of its page."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from exporter.settings import Settings
from loadtests.report.objective_report import Objective, objectives_of
from loadtests.report.run_figures import (
    Goodput,
    Latency,
    Spread,
    Streams,
    goodput_of,
    latencies_of,
    spread_of,
    streams_of,
)
from loadtests.result import Outcome, finite, quantile_of
from pages import units

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loadtests.profiles.profile import Phase
    from loadtests.result import Floats, RunResult

SLICES: Final = 120
_LEAST_SLICE_SECONDS: Final = 0.25
_LEAST_SLICE_REQUESTS: Final = 10
"""Fewer on average make a chart of single requests; short runs have `_LEAST_TREND` slices anyway."""
_CURVE_POINTS: Final = 200
_LEAST_TREND: Final = 20
_HOUR: Final = 3600.0
_MOST: Final = 0.5
"""Share of failed requests above which even the median latency is infinite."""


class Slice(Settings):
    """Requests that were due in one part of the run."""

    start_seconds: float
    offered_per_second: float
    answered_per_second: float
    """Correct answers to those requests, whenever they came, per second of the slice."""
    completed_per_second: float
    """Correct answers that came in this part, per second."""
    missed: int
    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None
    first_response: Spread | None = None
    """Time to the first response, of streamed requests with correct answers."""
    mean_gap: Spread | None = None
    """Time for each output token after the first, of the same."""


class Part(Settings):
    """A phase of the profile."""

    name: str
    start_seconds: float
    end_seconds: float
    requests: int
    offered_per_second: float
    intended_per_second: float | None
    miss_ratio: float | None
    p50: float | None
    p99: float | None
    """99th percentile over all of its requests; null also where misses make it infinite."""


class Trend(Settings):
    """Change of the median latency over the run, by Theil and Sen over the slices."""

    seconds_per_hour: float
    low: float
    high: float
    rises: bool
    """The 95 % interval is above 0."""


class CurvePoint(Settings):
    """One point of the distribution."""

    quantile: float
    from_intended: float
    from_send: float | None


class RunReport(Settings):
    """Result of `tritonwatch load report` for one run."""

    format: Literal["tritonwatch-load-report"] = "tritonwatch-load-report"
    version: Literal[1] = 1
    models: tuple[str, ...]
    mode: str
    protocol: str
    address: str
    profile: dict[str, Any]
    valid: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    duration_seconds: float
    requests: int
    outcomes: dict[str, int]
    miss_ratio: float | None
    throughput: float
    """Correct answers per second."""
    intended_rate: float
    latency: Latency
    """Latency from the intended send, over all requests: misses are infinitely late.
    Quantiles are exact, except `dispatch_delay` and `between_responses`: within 1.1 %."""
    from_send: Latency
    """Latency from the real send, over all requests, as are `first_response` and `mean_gap`
    over all that stream; `count`, `mean` and `max` are of those that were measured."""
    dispatch_delay: Latency
    """Delay added by the sender."""
    first_response: Latency | None
    mean_gap: Latency | None = None
    """Time of a request for each output token after the first: one value a request."""
    between_responses: Latency | None
    streams: Streams | None = None
    goodput: Goodput | None = None
    objectives: tuple[Objective, ...] = ()
    """Terms of the objective that the run was given (`--slo`)."""
    slices: tuple[Slice, ...]
    parts: tuple[Part, ...]
    curve: tuple[CurvePoint, ...]
    trend: Trend | None
    errors: dict[str, int]
    sender_cpu_seconds: float
    seed: int
    payload_sha256: str
    started_at: float
    workers: int
    hardware: dict[str, Any]
    versions: dict[str, str]


def report_of(result: RunResult) -> RunReport:
    """The report of a run."""
    about, requests = result.about, result.requests
    slices, latencies = tuple(_slices(result)), latencies_of(result)
    return RunReport(
        models=about.entries,
        mode=about.mode,
        protocol=about.protocol,
        address=about.address,
        profile=dict(about.profile),
        valid=result.verdict.valid,
        reasons=result.verdict.reasons,
        warnings=reservations(result),
        duration_seconds=result.duration_seconds,
        requests=len(requests),
        outcomes={o.name.lower(): requests.count(o) for o in Outcome},
        miss_ratio=result.miss_ratio,
        throughput=result.throughput,
        intended_rate=result.intended_rate,
        latency=latencies["from_intended"],
        from_send=latencies["from_send"],
        dispatch_delay=latencies["dispatch_delay"],
        first_response=latencies.get("first_response"),
        mean_gap=latencies.get("mean_gap"),
        between_responses=latencies.get("between_responses"),
        streams=streams_of(result),
        goodput=goodput_of(result),
        objectives=objectives_of(result),
        slices=slices,
        parts=tuple(_parts(result)),
        curve=tuple(_curve(result)),
        trend=_trend(slices),
        errors=dict(result.errors),
        sender_cpu_seconds=result.sender_cpu_seconds,
        seed=about.seed,
        payload_sha256=about.payload_sha256,
        started_at=about.started_at,
        workers=about.workers,
        hardware=dict(about.hardware),
        versions=dict(about.versions),
    )


def reservations(result: RunResult) -> tuple[str, ...]:
    """Return the warnings of a run's verdict, and that most of its requests failed."""
    found = result.verdict.warnings
    if result.miss_ratio is not None and result.miss_ratio > _MOST:
        found = (*found, f"{units.percent(result.miss_ratio)} of the requests failed")
    return tuple(found)


def quantile(values: Floats, q: float) -> float | None:
    """Return a quantile by the inverse distribution function; None if infinite or empty."""
    return finite(quantile_of(values, q))


def _slices(result: RunResult) -> Iterator[Slice]:
    requests, length = result.requests, result.duration_seconds
    if not len(requests) or length <= 0:
        return
    filled = max(len(requests) / _LEAST_SLICE_REQUESTS, _LEAST_TREND)
    count = int(min(max(length / _LEAST_SLICE_SECONDS, 1), filled, SLICES))
    edges = np.linspace(0.0, length, count + 1)
    late, due = requests.waits, requests.intended
    right = requests.outcome == Outcome.OK
    first, gap = requests.first - due, requests.mean_gap
    completed = np.histogram(requests.done[right], edges)[0]
    width = length / count
    for place, (start, end) in enumerate(pairwise(edges.tolist())):
        chosen = (due >= start) & (due < end)
        inside = late[chosen]
        known = inside[np.isfinite(inside)]
        yield Slice(
            start_seconds=float(start),
            offered_per_second=inside.size / width,
            answered_per_second=known.size / width,
            completed_per_second=float(completed[place]) / width,
            missed=int(inside.size - known.size),
            p50=quantile(inside, 0.5),
            p95=quantile(inside, 0.95),
            p99=quantile(inside, 0.99),
            max=float(known.max()) if known.size else None,
            first_response=spread_of(first[chosen & right]),
            mean_gap=spread_of(gap[chosen & right]),
        )


def _parts(result: RunResult) -> Iterator[Part]:
    order = np.argsort(result.requests.intended, kind="stable")
    late, due = result.requests.waits[order], result.requests.intended[order]
    for phase in phases_of(result.about.profile):
        start, end = phase.start_seconds, phase.end_seconds
        inside = late[slice(*np.searchsorted(due, (start, end)))]
        missed = np.count_nonzero(~np.isfinite(inside))
        yield Part(
            name=phase.name,
            start_seconds=start,
            end_seconds=end,
            requests=inside.size,
            offered_per_second=inside.size / (end - start),
            intended_per_second=phase.requests_per_second,
            miss_ratio=float(missed / inside.size) if inside.size else None,
            p50=quantile(inside, 0.5),
            p99=quantile(inside, 0.99),
        )


def phases_of(profile: Mapping[str, Any]) -> tuple[Phase, ...]:
    """The phases of a profile as a result keeps it; none where it has one only."""
    from loadtests.profiles import AnyProfile  # noqa: PLC0415 - a dozen modules

    try:
        found = TypeAdapter(AnyProfile).validate_python(dict(profile)).phases()
    except ValidationError:  # a closed loop, or a recording that is not here
        return ()
    return found if len(found) > 1 else ()


def _curve(result: RunResult) -> Iterator[CurvePoint]:
    """Evenly spaced where the tail is read: on a scale of 1 / (1 - q)."""
    count = len(result.requests)
    late = np.sort(result.requests.waits)
    sent = np.sort(
        (result.requests.done - result.requests.sent)[
            result.requests.outcome == Outcome.OK
        ]
    )
    if not count:
        return
    for nines in np.linspace(0.0, math.log10(max(count, 2)), _CURVE_POINTS):
        q = 1.0 - 10.0 ** -float(nines)
        rank = min(int(q * count), count - 1)
        if not math.isfinite(late[rank]):
            return
        yield CurvePoint(
            quantile=q,
            from_intended=float(late[rank]),
            from_send=float(sent[rank]) if rank < sent.size else None,
        )


def _trend(slices: tuple[Slice, ...]) -> Trend | None:
    from scipy import stats  # noqa: PLC0415 - a second

    known = [(s.start_seconds, s.p50) for s in slices if s.p50 is not None]
    if len(known) < _LEAST_TREND:
        return None
    times, medians = np.array(known, np.float64).T
    found = np.asarray(stats.theilslopes(medians, times, 0.95), np.float64) * _HOUR
    slope, _, low, high = found.tolist()
    return Trend(seconds_per_hour=slope, low=low, high=high, rises=low > 0)
