"""Checks that a run's numbers describe the server, not the sender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.result import Outcome
from pages.units import duration, percent

if TYPE_CHECKING:
    from exporter.histograms.histogram import Histogram
    from loadtests.result import RunResult

MAX_DELAY_OF_SLO: Final = 0.10
"""Limit of the 99th percentile of the dispatch delay, as a share of the SLO's latency."""
MAX_DELAY_OF_TAIL: Final = 0.5
"""Limit without an SLO, as a share of the 99th percentile of the latency."""
MAX_UNSENT: Final = 0.01
MAX_CPU: Final = 0.9
"""Limit as a share of one core, which is all that one sender can use."""
MAX_WAITED: Final = 0.01
"""Limit of waits, as a share of the time of a closed loop's requests and waits."""
_NOTABLE: Final = 0.10


def verdict_of(
    result: RunResult,
    cpu_share: float,
    slo_seconds: float | None,
    *,
    starved: int = 0,
    queued: int = 0,
) -> RunResult:
    """Return the result with the reasons against it.

    `cpu_share` is the sender's CPU time over the run's, 1 being a core; `starved` is the
    number of requests that failed for lack of something on the sender's side, and `queued`
    the number of those that waited until the server allowed a stream.
    """
    reasons = [
        reason
        for reason in (
            "the run was interrupted" if result.about.interrupted else None,
            _unsent(result),
            _starved(result, starved),
            _unavailable(result),
            _late(result, slo_seconds),
            _busy(result, cpu_share),
        )
        if reason
    ]
    notes = (
        _notable(result, slo_seconds),
        _unanswered(result),
        _queued(result, queued),
    )
    warnings = [note for note in notes if note and not reasons]
    return result.invalid(*reasons).warned(*warnings)


def _unsent(result: RunResult) -> str | None:
    unsent = result.requests.count(Outcome.UNSENT)
    whole = len(result.requests)
    if not whole:
        return "nothing was sent"
    if unsent <= MAX_UNSENT * whole or result.about.interrupted:
        return None
    return (
        f"the sender came too late for {unsent} of {whole} requests "
        f"({percent(unsent / whole)}; at most {percent(MAX_UNSENT)} may be left)"
    )


def _starved(result: RunResult, starved: int) -> str | None:
    # Each one is a failure that is not the server's, and few decide on an SLO.
    if not starved:
        return None
    return (
        f"the sender was the bottleneck: {starved} of {len(result.requests)} requests found "
        "no free descriptor, local port or memory here; raise the limit (ulimit -n), lower "
        "in_flight, or share the load out over more senders"
    )


def _queued(result: RunResult, queued: int) -> str | None:
    if not queued:
        return None
    return (
        f"{queued} of {len(result.requests)} requests waited here for one of the streams "
        "that the server or a proxy allows on a connection, and their latency includes "
        "that; raise that limit, or share the load out over more senders"
    )


def _unavailable(result: RunResult) -> str | None:
    # A closed loop sends few requests to a server that is down, so that its share of
    # misses would depend on the back-off.
    waited = result.unanswered.waited_seconds
    if not waited:
        return None
    in_flight = float(np.nansum(result.requests.done - result.requests.sent))
    share = waited / (in_flight + waited)
    if share <= MAX_WAITED:
        return None
    return (
        f"the server was unavailable: {_without_answer(result)}, and further requests "
        f"waited for {percent(share)} of the time; so few requests do not show what users "
        "would experience: use an open loop"
    )


def _unanswered(result: RunResult) -> str | None:
    if result.about.mode == "open" or not result.unanswered.count:
        return None
    return f"the server was briefly unavailable: {_without_answer(result)}"


def _without_answer(result: RunResult) -> str:
    found = result.unanswered
    number = f"{found.count} request{'s' if found.count > 1 else ''} got no answer"
    if found.first_seconds is None or found.last_seconds is None:
        return number
    return f"{number}, from {found.first_seconds:.1f} to {found.last_seconds:.1f} s"


def _at_least(delays: Histogram) -> float | None:
    """Return a lower bound of the 99th percentile, with 97.5 % confidence.

    The 99th percentile of a few requests is the latest one, which shows no bottleneck. Where
    there are too few for an interval, a lower percentile's lower end bounds it as well.
    """
    for q in (0.99, 0.95, 0.9, 0.5):
        interval = delays.quantile_interval(q)
        if interval is not None:
            return interval[0]
    return None


def _late(result: RunResult, slo_seconds: float | None) -> str | None:
    delay = _at_least(result.dispatch_delay)
    tail = result.from_intended.quantile(0.99)
    if result.about.mode == "closed" or delay is None:
        return None
    if slo_seconds is not None:
        if delay <= MAX_DELAY_OF_SLO * slo_seconds:
            return None
        return (
            f"the sender was the bottleneck: its p99 delay is at least {duration(delay)}, "
            f"more than {percent(MAX_DELAY_OF_SLO)} of the SLO's {duration(slo_seconds)}"
        )
    if tail is None or delay <= MAX_DELAY_OF_TAIL * tail:
        return None
    return (
        f"the sender was the bottleneck: its p99 delay is at least {duration(delay)}, "
        f"more than {percent(MAX_DELAY_OF_TAIL)} of the p99 latency of {duration(tail)}"
    )


def _busy(result: RunResult, cpu_share: float) -> str | None:
    if result.about.mode == "open" or cpu_share <= MAX_CPU:
        return None
    return (
        f"the sender was the bottleneck: it used {percent(cpu_share)} of a core, so the "
        "server could take more; share the load out over more senders"
    )


def _notable(result: RunResult, slo_seconds: float | None) -> str | None:
    delay = result.dispatch_delay.quantile(0.99)
    tail = result.from_intended.quantile(0.99)
    if slo_seconds is not None or delay is None or tail is None:
        return None
    if not np.isfinite(tail) or delay <= _NOTABLE * tail:
        return None
    return (
        f"the sender's own p99 delay is {duration(delay)}, {percent(delay / tail)} of the p99 "
        "latency; an SLO to judge it by was not given"
    )
