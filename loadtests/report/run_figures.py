"""Figures of a load run: quantiles with intervals, streams, goodput."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.settings import Settings
from loadtests.dependent_intervals import supported_quantile
from loadtests.load_objective import parse_limits
from loadtests.result import (
    HISTOGRAMS,
    Outcome,
    finite,
    quantile_of,
    seconds_over_all,
)

if TYPE_CHECKING:
    from exporter.histograms.histogram import Histogram
    from loadtests.result import Floats, RunResult

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
    in_order = seconds_over_all(result.requests)
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
    side = supported_quantile(seconds, q)
    if side is None:
        return Quantile(value=None, low=None, high=None)
    return Quantile(
        value=finite(side.value),
        low=finite(side.low),
        high=finite(side.high),
        effective_requests=side.effective_requests or None,
        interval_unknown=side.reason,
    )


class Spread(Settings):
    """Two quantiles in seconds."""

    p50: float
    p99: float


class Streams(Settings):
    """Rates of responses and tokens, of correct answers only."""

    responses_per_second: float
    output_tokens_per_second: float | None
    """As the server counts them; null where it does not."""
    output_tokens_of_a_request: float | None
    """Mean of the requests of which they are known."""


class Goodput(Settings):
    """Requests within all of some limits at once."""

    limits: str
    requests_per_second: float | None
    """Null where it was not measured."""
    ratio: float | None
    """Share of all requests."""
    unmeasured: str = ""
    """The reason why it was not measured."""


def streams_of(result: RunResult) -> Streams | None:
    """Return the rates of a run's streams; None without any."""
    requests = result.requests.where(result.requests.outcome == Outcome.OK)
    if not requests.responses.any() or result.duration_seconds <= 0:
        return None
    tokens = requests.tokens[requests.tokens > 0]
    return Streams(
        responses_per_second=result.per_second(result.requests.responses),
        output_tokens_per_second=result.per_second(result.requests.tokens)
        if tokens.size
        else None,
        output_tokens_of_a_request=float(tokens.mean()) if tokens.size else None,
    )


def goodput_of(result: RunResult) -> Goodput | None:
    """Return the requests within the limits that the run was given; None without any."""
    limits = result.about.goodput
    if not limits or result.duration_seconds <= 0:
        return None
    parsed = parse_limits(limits)
    if unmeasured := parsed.unmeasured(result.requests):
        return Goodput(
            limits=limits, requests_per_second=None, ratio=None, unmeasured=unmeasured
        )
    good = parsed.good(result.requests)
    return Goodput(
        limits=limits,
        requests_per_second=result.per_second(good),
        ratio=float(good.mean()),
    )


def spread_of(seconds: Floats) -> Spread | None:
    """Return the quantiles of the finite values; None without any."""
    known = seconds[np.isfinite(seconds)]
    if not known.size:
        return None
    return Spread(p50=quantile_of(known, 0.5), p99=quantile_of(known, 0.99))
