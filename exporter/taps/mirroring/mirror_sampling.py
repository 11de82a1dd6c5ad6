"""Sampling of mirrored requests: a token bucket for each model."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

LEAST_CAPACITY: Final = 8.0
"""Minimum capacity of a bucket, which else holds the tokens of a second."""
MAX_BUCKETS: Final = 10_000


@dataclass(slots=True)
class _Bucket:
    rate: float
    tokens: float
    filled_at: float
    price: float = 1.0


class Sampler:
    """Token buckets by key. Thread-safe.

    A sample costs one token on average, exponentially distributed: with a fixed price
    the samples would keep step with traffic that repeats a pattern, and show a part of
    it only.

    Args:
        clock: monotonic seconds.
        rng: draws the prices.
    """

    def __init__(self, clock: Callable[[], float], rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._lock = threading.Lock()
        self._buckets: dict[str, _Bucket] = {}

    def take(self, key: str, per_second: float) -> bool:
        """Return whether a sample of `key` may be taken now; count it if so."""
        now = self._clock()
        capacity = max(per_second, LEAST_CAPACITY)
        with self._lock:
            bucket = self._buckets.get(key)
            if bucket is None or bucket.rate != per_second:
                bucket = self._new(key, per_second, capacity, now)
            tokens = bucket.tokens + (now - bucket.filled_at) * per_second
            bucket.filled_at = now
            bucket.tokens = tokens = min(tokens, capacity)
            if tokens < bucket.price:
                return False
            bucket.tokens -= bucket.price
            # Tokens above the capacity would never be available.
            bucket.price = min(self._rng.expovariate(1.0), capacity)
            return True

    def _new(self, key: str, rate: float, capacity: float, now: float) -> _Bucket:
        if len(self._buckets) >= MAX_BUCKETS:
            self._buckets.clear()
        bucket = self._buckets[key] = _Bucket(rate, capacity, now)
        return bucket
