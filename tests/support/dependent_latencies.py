"""Latencies that depend on each other, with the quantiles of the process that makes them.

Each generator takes numpy's Generator and a count, and returns latencies in their order
of time in units of the mean service time; `quantile` is that of one latency.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

SIGMA = 0.5


def independent(rng, count):
    return rng.lognormal(0.0, SIGMA, count)


def batches_of_8(rng, count):
    """All requests of a batch take equally long."""
    values = np.repeat(rng.lognormal(0.0, SIGMA, count // 8 + 2), 8)
    start = rng.integers(8)
    return values[start : start + count]


def autoregressive(rng, count, correlation=0.9):
    noise = rng.normal(size=count) * math.sqrt(1.0 - correlation**2)
    noise[0] /= math.sqrt(1.0 - correlation**2)
    level, out = 0.0, np.empty(count)
    for place, step in enumerate(noise.tolist()):
        level = correlation * level + step
        out[place] = level
    return np.exp(SIGMA * out)


def queue(load):
    """Times in an M/M/1 queue from its stationary state, by Lindley's recursion."""

    def draw(rng, count):
        service = rng.exponential(1.0, count)
        gaps = rng.exponential(1.0 / load, count)
        first = rng.exponential(1.0 / (1.0 - load)) if rng.random() < load else 0.0
        walk = np.concatenate(([0.0], np.cumsum(service[:-1] - gaps[1:])))
        waits = np.maximum(first + walk, walk - np.minimum.accumulate(walk))
        return waits + service

    return draw


def sampled(draw, one_in):
    """One request in `one_in` is traced."""
    return lambda rng, count: draw(rng, count * one_in)[::one_in]


def slow_spells(rng, count, length=50.0, share=0.02):
    """`share` of the requests, in spells of `length` on average, take five times as long."""
    gap = length * (1.0 - share) / share
    pairs = int(3 * count / (length + gap)) + 20
    lengths = rng.exponential(1.0, (pairs, 2)) * (gap, length)
    slow_first = int(rng.random() < share)
    ends = np.cumsum(lengths.ravel()[slow_first:])
    slow = (np.searchsorted(ends, np.arange(count)) + slow_first) % 2
    return rng.lognormal(0.0, SIGMA, count) * np.where(slow, 5.0, 1.0)


def long_memory(rng, count, order=0.4):
    """A level whose correlation falls so slowly that it has no length, under noise.

    Fractionally integrated noise of that order (Granger, Joyeux 1980), of variance 1.
    """
    past = np.arange(1, count)
    weights = np.cumprod(np.append(1.0, (past - 1.0 + order) / past))
    steps = rng.normal(size=2 * count)
    size = 1 << math.ceil(math.log2(3 * count))
    both = np.fft.rfft(weights, size) * np.fft.rfft(steps, size)
    level = np.fft.irfft(both, size)[count : 2 * count] / math.sqrt(weights @ weights)
    return np.exp(SIGMA * (0.8 * level + 0.6 * rng.normal(size=count)))


def power_law_spells(rng, count, shortest=100.0, index=1.5):
    """Half of the time twice as slow, in spells whose length has no finite variance."""
    lengths = shortest * (1.0 + rng.pareto(index, count // int(shortest) + 2))
    ends = np.cumsum(lengths) - rng.random() * lengths[0]
    slow = (np.searchsorted(ends, np.arange(count)) + rng.integers(2)) % 2
    return rng.lognormal(0.0, SIGMA, count) * np.where(slow, 2.0, 1.0)


def long_spells(rng, count):
    """A quarter of the requests are five times as slow, in spells of 2,500."""
    return slow_spells(rng, count, 2_500.0, 0.25)


def lognormal_quantile(q):
    return math.exp(SIGMA * NormalDist().inv_cdf(q))


def queue_quantile(load):
    return lambda q: -math.log1p(-q) / (1.0 - load)


def spells_quantile(q, share=0.02, factor=5.0):
    below = NormalDist().cdf
    low, high = 1e-3, 1e3
    for _ in range(100):
        x = math.sqrt(low * high)
        z = math.log(x) / SIGMA
        slow = below(z - math.log(factor) / SIGMA)
        low, high = (low, x) if (1 - share) * below(z) + share * slow > q else (x, high)
    return x


# Name: how to draw, the true quantile, how many requests are traced in a window.
PROCESSES = {
    "independent": (independent, lognormal_quantile, 10_000),
    "batches of 8": (batches_of_8, lognormal_quantile, 10_000),
    "AR(0.9)": (autoregressive, lognormal_quantile, 10_000),
    "M/M/1 at 50 %": (queue(0.5), queue_quantile(0.5), 10_000),
    "M/M/1 at 80 %": (queue(0.8), queue_quantile(0.8), 10_000),
    "M/M/1 at 80 %, long": (queue(0.8), queue_quantile(0.8), 100_000),
    "M/M/1 at 95 %": (queue(0.95), queue_quantile(0.95), 10_000),
    "M/M/1 at 95 %, long": (queue(0.95), queue_quantile(0.95), 100_000),
    "slow spells, 4 a window": (slow_spells, spells_quantile, 10_000),
    "slow spells, 40 a window": (slow_spells, spells_quantile, 100_000),
    "1 in 100 of M/M/1 at 80 %": (
        sampled(queue(0.8), 100),
        queue_quantile(0.8),
        1_000,
    ),
    "long memory": (long_memory, lognormal_quantile, 10_000),
    "power-law spells": (
        power_law_spells,
        lambda q: spells_quantile(q, 0.5, 2.0),
        10_000,
    ),
    "long spells": (long_spells, lambda q: spells_quantile(q, 0.25), 10_000),
}


def stream_gaps(correlation):
    """Gaps of streams of 50, each with a pace of its own; paces depend on those before."""

    def draw(rng, count):
        paces = autoregressive(rng, count // 50, correlation) ** 0.8
        return np.repeat(paces, 50) * rng.lognormal(0.0, 0.6 * SIGMA, count)

    return draw


# Gaps in a window, like `PROCESSES`.
STREAMS = {
    "200 streams": (stream_gaps(0.0), lognormal_quantile, 10_000),
    "200 streams, AR(0.9)": (stream_gaps(0.9), lognormal_quantile, 10_000),
    "2,000 streams": (stream_gaps(0.0), lognormal_quantile, 100_000),
    "2,000 streams, AR(0.9)": (stream_gaps(0.9), lognormal_quantile, 100_000),
}


# Two instances of one model, each with slow spells of its own.


def alike(draw):
    """Both from the same process, independently of each other."""
    return lambda rng, count: (draw(rng, count), draw(rng, count))


def wandering(rng, count):
    """A level that wanders by an eighth over some 200 requests, under noise of a half."""
    return independent(rng, count) * autoregressive(rng, count, 0.995) ** 0.25


def unlike_shapes(rng, count):
    """Equal means: nearly constant, and one request in 500 that takes 500 times as long."""
    share, factor, sigma = 0.002, 500.0, 0.05
    stalled = np.where(rng.random(count) < share, factor, 1.0)
    constant = 1.0 + share * (factor - 1.0)
    return (
        constant * rng.lognormal(0.0, sigma, count),
        stalled * rng.lognormal(0.0, sigma, count),
    )


def outages(rng, count, length=30, share=0.02):
    """Whether each request fails: `share` of them do, in outages of `length`."""
    failed = np.zeros(count, dtype=bool)
    mean_gap = length * (1.0 - share) / share
    start = rng.exponential(mean_gap)
    while start < count:
        failed[int(start) : int(start) + length] = True
        start += length + rng.exponential(mean_gap)
    return failed


def window_levels(rng, windows, correlation, requests=40):
    """Latencies (windows, requests) of one model whose level moves from window to window."""
    levels = autoregressive(rng, windows, correlation)
    return levels[:, None] * rng.lognormal(0.0, SIGMA, (windows, requests))


def growing_load(rng, windows, requests=100):
    """Latencies of two alike models, 90 and 10 a window, under a load that grows tenfold."""
    levels = np.geomspace(1.0, 10.0, windows)[:, None]
    latencies = levels * rng.lognormal(0.0, SIGMA, (windows, requests))
    return np.split(latencies, [9 * requests // 10], axis=1)


COMPARED = {
    "independent": alike(independent),
    "AR(0.3)": alike(lambda rng, count: autoregressive(rng, count, 0.3)),
    "AR(0.6)": alike(lambda rng, count: autoregressive(rng, count, 0.6)),
    "AR(0.9)": alike(autoregressive),
    "batches of 8": alike(batches_of_8),
    "M/M/1 at 80 %": alike(queue(0.8)),
    "slow spells": alike(slow_spells),
    "slow wander": alike(wandering),
    "long memory": alike(long_memory),
    "power-law spells": alike(power_law_spells),
    "unlike shapes": unlike_shapes,
}
