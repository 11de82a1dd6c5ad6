"""Quantiles of a load run's latencies, with intervals for requests that depend on each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.histograms.quantiles import interval_ranks
from exporter.settings import Settings
from loadtests.dependent_intervals import quantile_side
from loadtests.result import HISTOGRAMS, finite

if TYPE_CHECKING:
    from exporter.histograms.histogram import Histogram
    from loadtests.result import Floats, RunResult

CONFIDENCE: Final = 0.95
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


class Quantile(Settings):
    """A quantile in seconds, with its 95 % interval where the requests support one."""

    value: float | None
    """Null where it is unknown, or infinite because of misses."""
    low: float | None
    high: float | None
    """Null also where misses make it infinite."""
    effective_requests: float | None = None
    """Number of independent requests that give an interval of the same width: requests
    that wait in the same queue count less. Null where it is unknown."""
    interval_unknown: str = ""
    """The reason why there is no interval."""


class Latency(Settings):
    """Latencies of one kind."""

    count: int
    mean: float | None
    max: float | None
    p50: Quantile
    p90: Quantile
    p95: Quantile
    p99: Quantile
    p999: Quantile


def latencies_of(result: RunResult) -> dict[str, Latency]:
    """Return the latencies of a run by histogram; empty ones of streams are absent.

    Gaps between responses are kept as a histogram only, without their order: they have no
    intervals. Nor has the sender's own delay.
    """
    requests = result.requests
    timed = requests.where(requests.timed)
    in_order = {
        # Over all requests: misses are infinitely late.
        "from_intended": requests.waits,
        "from_send": timed.done - timed.sent,
        "first_response": timed.first - timed.intended,
        "mean_gap": timed.mean_gap,
    }
    found = {
        name: _latency(getattr(result, name), in_order.get(name))
        for name in (*HISTOGRAMS, "between_responses")
    }
    needed = ("from_intended", "from_send", "dispatch_delay")
    return {name: one for name, one in found.items() if one.count or name in needed}


def _latency(histogram: Histogram, seconds: Floats | None) -> Latency:
    return Latency(
        count=histogram.count,
        mean=histogram.sum / histogram.count if histogram.count else None,
        max=histogram.max,
        **{
            name: _without_order(histogram, q)
            if seconds is None
            else _quantile(seconds[~np.isnan(seconds)], q)
            for name, q in _QUANTILES.items()
        },
    )


def _without_order(histogram: Histogram, q: float) -> Quantile:
    known = histogram.quantile_interval(q) is not None
    return Quantile(value=histogram.quantile(q) if known else None, low=None, high=None)


def _quantile(seconds: Floats, q: float) -> Quantile:
    """The q-quantile of `seconds` (N,), in order of time; infinite ones are misses."""
    if interval_ranks(seconds.size, q, CONFIDENCE) is None:
        return Quantile(value=None, low=None, high=None)
    side = quantile_side(seconds, q, CONFIDENCE)
    return Quantile(
        value=finite(side.value),
        low=finite(side.low),
        high=finite(side.high),
        effective_requests=side.effective_requests or None,
        interval_unknown=side.reason,
    )
