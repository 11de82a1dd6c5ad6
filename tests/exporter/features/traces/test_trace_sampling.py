"""Which rate gives how many samples."""

from __future__ import annotations

import pytest

from exporter.features.traces.trace_control import is_safe
from exporter.features.traces.trace_sampling import MAX_RATE, next_prime, rate_for


def test_the_next_prime_is_the_least():
    primes = [n for n in range(2, 3000) if all(n % d for d in range(2, n))]
    for number in range(2, 2900):
        assert next_prime(number) == next(p for p in primes if p >= number)
    assert next_prime(MAX_RATE) == MAX_RATE


@pytest.mark.parametrize("requests_per_second", [0, 0.1, 1, 9, 50, 333, 5000, 1e6, 1e9])
@pytest.mark.parametrize("samples_per_minute", [1, 60, 600, 60_000])
def test_a_rate_gives_no_more_than_asked_for_and_at_most_a_third_less(
    requests_per_second, samples_per_minute
):
    rate = rate_for(
        requests_per_second,
        samples_per_minute=samples_per_minute,
        max_traces_per_second=100,
    )
    traced = requests_per_second / rate
    wanted = min(samples_per_minute / 60, 100)
    if rate < MAX_RATE:
        assert traced <= wanted + 1e-9
    if requests_per_second > wanted:
        # Next primes: 2, 3, 5, 7, 11: the widest step is from 2 to 3, as wide as
        # the rounding up of a rate just above 1.
        assert traced >= wanted / 2 or rate == MAX_RATE
    else:
        assert rate == 1


@pytest.mark.parametrize("requests_per_second", [101, 500, 3000])
def test_every_request_is_never_traced_under_load(requests_per_second):
    rate = rate_for(
        requests_per_second, samples_per_minute=60_000, max_traces_per_second=100
    )
    assert rate > 1
    assert requests_per_second / rate <= 100


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ("2.56.0", False),
        ("2.57.0", True),
        ("2.57.0dev", True),
        ("2.51.0", False),
        ("3.0.1", True),
        ("", False),
        ("dev", False),
    ],
)
def test_versions_before_the_fix_are_told(version, safe):
    assert is_safe(version) is safe
