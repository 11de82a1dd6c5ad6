"""Queues whose capacity is known, simulated without a clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from loadtests import load_objective
from loadtests.capacity.observation import observation, observed
from loadtests.capacity.search import Search, SearchSettings
from loadtests.result import Outcome, Requests

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


def heavy_tailed(arrivals: Floats, rng: np.random.Generator) -> Floats:
    """Departures of one server with lognormal service: 2 ms, squared variation 4."""
    sigma = np.sqrt(np.log(5.0))
    service = 0.002 * rng.lognormal(-sigma * sigma / 2, sigma, arrivals.size)
    return one_server(arrivals, service)


def stalling(arrivals: Floats, rng: np.random.Generator) -> Floats:
    """M/M/1 with 2 ms that stands still for 0.3 s, once a minute at random times."""
    service = rng.exponential(0.002, arrivals.size)
    seconds = float(arrivals[-1]) if arrivals.size else 0.0
    stalls = np.sort(rng.random(rng.poisson(seconds / 60.0))) * seconds
    np.add.at(service, np.searchsorted(arrivals, stalls), 0.3)
    return one_server(arrivals, service)


# A line of the logarithm of the share through simulations at seven rates, of 24 million
# arrivals each (M/G/1) and 72 million (stalls): known to about 0.4 %.
BURSTY = (
    Queue("M/G/1", heavy_tailed, 0.04, 149.5),
    Queue("stalls", stalling, 0.05, 283.7),
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

    Requests, objective and blocks go the way of those of a real run. Terms of `allowed`
    beyond the first are of a kind that no request misses.
    """
    late = load_objective.Term("late", float(allowed[0]), queue.limit_seconds)
    never = [load_objective.Term(f"never {i}", a) for i, a in enumerate(allowed[1:])]
    slo = load_objective.Slo((late, *never))

    def measure(rate: float, seconds: float, _index: int) -> Any:
        return observation(
            rate, requests_of(queue, rate, seconds, rng), slo, seconds=seconds
        )

    return Search(measure, slo.allowed, SearchSettings(**settings), rng)


def requests_of(
    queue: Queue, rate: float, seconds: float, rng: np.random.Generator
) -> Requests:
    """Poisson arrivals at a queue that is empty at first."""
    arrivals = np.sort(rng.random(rng.poisson(rate * seconds))) * seconds
    requests = Requests.empty(arrivals.size)
    requests.intended[:] = requests.sent[:] = arrivals
    requests.done[:] = queue.departures(arrivals, rng)
    requests.outcome[:] = Outcome.OK
    return requests


def searching(queue, seed, **settings):
    return search_of(queue, np.random.default_rng([11, seed]), **settings)


def run_of(rate, due, late, seconds, block_seconds=0.5):
    """A run whose requests at `due` missed the terms where `late` is True."""
    return observed(
        rate,
        due,
        late.reshape(due.size, -1),
        start_seconds=0,
        end_seconds=seconds,
        block_seconds=block_seconds,
    )
