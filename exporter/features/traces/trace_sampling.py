"""Trace rate that gives a number of samples per minute.

Triton traces every n-th request. A prime n is in step with no client that repeats a
pattern of its own, unless the pattern is n long.
"""

from __future__ import annotations

import math
from typing import Final

MAX_RATE: Final = 1_000_003
"""A prime; at a million requests a second it is still one sample each second."""


def next_prime(number: int) -> int:
    """The least prime that is not below `number`; 1 for 1 or less."""
    if number <= 1:
        return 1
    candidate = number
    while not _is_prime(candidate):
        candidate += 1
    return candidate


def rate_for(
    requests_per_second: float,
    *,
    samples_per_minute: float,
    max_traces_per_second: float,
) -> int:
    """Return the trace rate n, for every n-th request: a prime, or 1 where all may be traced.

    At most `max_traces_per_second` are traced, whatever is requested: before 2.57 each
    traced request is a risk to the server (server#7795).
    """
    wanted = requests_per_second * 60.0 / samples_per_minute
    least = requests_per_second / max_traces_per_second
    return next_prime(min(math.ceil(max(wanted, least, 1.0)), MAX_RATE))


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))
