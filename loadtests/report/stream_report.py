"""Streamed answers and goodput in a load report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from exporter.settings import Settings
from loadtests.load_objective import parse_limits
from loadtests.result import Outcome, quantile_of

if TYPE_CHECKING:
    from loadtests.result import Floats, RunResult


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
    requests, seconds = result.requests, result.duration_seconds
    requests = requests.where(requests.outcome == Outcome.OK)
    if not requests.responses.any() or seconds <= 0:
        return None
    tokens = requests.tokens[requests.tokens > 0]
    return Streams(
        responses_per_second=int(requests.responses.sum()) / seconds,
        output_tokens_per_second=int(tokens.sum()) / seconds if tokens.size else None,
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
        requests_per_second=good / result.duration_seconds,
        ratio=good / len(result.requests),
    )


def spread_of(seconds: Floats) -> Spread | None:
    """Return the quantiles of the finite values; None without any."""
    known = seconds[np.isfinite(seconds)]
    if not known.size:
        return None
    return Spread(p50=quantile_of(known, 0.5), p99=quantile_of(known, 0.99))
