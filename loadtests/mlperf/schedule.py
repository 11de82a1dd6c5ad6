"""The Server scenario's schedule, to the nanosecond LoadGen's own for the same seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_WORDS: Final = 624
_CHUNK: Final = 8192
_BELOW_ONE: Final = float(np.nextafter(1.0, 0.0))


def server_schedule(
    queries_per_second: float, least_seconds: float, least_queries: int, seed: int
) -> NDArray[np.float64]:
    """Seconds at which queries are due; the first at 0.

    Gaps are `std::exponential_distribution` over `std::mt19937(seed)`, cut to whole
    nanoseconds; the last query is the first that is not before `least_seconds` and
    has `least_queries - 1` before it.
    """
    end = round(least_seconds * 1e6) * 1000
    parts = [np.zeros(1, np.int64)]
    last, count = 0, 1
    for gaps in _gaps(queries_per_second, seed):
        times = last + np.cumsum(gaps)
        parts.append(times)
        last, count = int(times[-1]), count + times.size
        if last >= end and count >= least_queries:
            break
    due = np.concatenate(parts)
    # A query follows while the one before it is too early, or there are too few.
    before_end = int(np.searchsorted(due, end, "left"))
    return due[: max(before_end + 1, least_queries)] / 1e9


def _gaps(rate: float, seed: int) -> Iterator[NDArray[np.int64]]:
    """Whole nanoseconds, for ever."""
    bits = mersenne_twister(seed)
    while True:
        # libstdc++'s generate_canonical<double, 53>: two words of 32 bits, low first.
        words = bits.random_raw(2 * _CHUNK).astype(np.float64)
        unit = np.minimum((words[0::2] + words[1::2] * 2.0**32) / 2.0**64, _BELOW_ONE)
        seconds = -np.log(1.0 - unit) / rate
        yield (seconds * 1e9).astype(np.int64)


def mersenne_twister(seed: int) -> np.random.MT19937:
    """`std::mt19937(seed)`: Knuth's initialisation, which numpy's own seeding is not."""
    key = [seed & 0xFFFFFFFF]
    for i in range(1, _WORDS):
        key.append((1_812_433_253 * (key[-1] ^ (key[-1] >> 30)) + i) & 0xFFFFFFFF)
    bits = np.random.MT19937()
    bits.state = {
        "bit_generator": "MT19937",
        "state": {"key": np.array(key, np.uint32), "pos": _WORDS},
    }
    return bits
