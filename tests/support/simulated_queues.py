"""Queues whose capacity is known, simulated without a clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from loadtests.capacity.observation import observed
from loadtests.capacity.search import Search, SearchSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def one_server(arrivals: Floats, service: Floats) -> Floats:
    """Departures (N,) of one FIFO server, by Lindley's recursion as a running maximum."""
    worked = np.cumsum(service)
    return worked + np.maximum.accumulate(arrivals - (worked - service))


def constant(arrivals: Floats, seconds: float, servers: int) -> Floats:
    """Departures of `servers` with constant service: they take turns."""
    departures = np.empty_like(arrivals)
    for turn in range(servers):
        mine = arrivals[turn::servers]
        departures[turn::servers] = one_server(mine, np.full(mine.size, seconds))
    return departures


def batching(arrivals: Floats, fixed: float, each: float, most: int) -> Floats:
    """Departures of a server that takes what waits, up to `most`, as one batch."""
    departures, due = np.empty_like(arrivals), arrivals.tolist()
    first, free = 0, 0.0
    while first < len(due):
        start = max(free, due[first])
        last = first + 1
        while last < len(due) and last - first < most and due[last] <= start:
            last += 1
        free = start + fixed + each * (last - first)
        departures[first:last] = free
        first = last
    return departures


@dataclass(frozen=True)
class Queue:
    """A server, what p99 may be, and the rate at which it is just that."""

    name: str
    departures: Callable[[Floats, np.random.Generator], Floats]
    limit_seconds: float
    capacity: float
    """Where 1 % of requests are later than the limit, in the long run."""

    def waits(self, arrivals: Floats, rng: np.random.Generator) -> Floats:
        """Seconds (N,) from arrival to departure."""
        return self.departures(arrivals, rng) - arrivals


# M/M/1 is exact: P(T > t) = exp(-(mu - r) t). The others are of simulations of eight
# million arrivals at each of 13 halvings (the batching server: 1.2 million).
QUEUES = (
    Queue(
        "M/M/1",
        lambda a, rng: one_server(a, rng.exponential(0.002, a.size)),
        0.02,
        500 - np.log(100) / 0.02,
    ),
    Queue("M/D/1", lambda a, _: constant(a, 0.005, 1), 0.03, 126.04),
    Queue("M/D/4", lambda a, _: constant(a, 0.01, 4), 0.03, 305.58),
    Queue("batching", lambda a, _: batching(a, 0.002, 0.001, 8), 0.025, 651.25),
)

ALLOWED = np.array([0.01])
"""The share of requests that may be late: what a limit on the p99 comes to."""


def search_of(
    queue: Queue,
    rng: np.random.Generator,
    *,
    allowed: NDArray[np.float64] = ALLOWED,
    **settings: Any,
) -> Search:
    """A search for the queue's capacity that measures without waiting.

    Terms of `allowed` beyond the first are of a kind that no request misses.
    """

    def measure(rate: float, seconds: float, _index: int) -> Any:
        arrivals = np.sort(rng.random(rng.poisson(rate * seconds))) * seconds
        missed = np.zeros((arrivals.size, allowed.size), np.bool_)
        missed[:, 0] = queue.waits(arrivals, rng) > queue.limit_seconds
        return observed(
            rate,
            arrivals,
            missed,
            start_seconds=min(1.0, seconds / 3),
            end_seconds=seconds,
            block_seconds=0.25,
        )

    return Search(measure, allowed, SearchSettings(**settings), rng)
