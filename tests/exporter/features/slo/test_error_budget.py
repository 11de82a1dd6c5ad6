"""Burn rates and budgets against brute force over the full list of events."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.features.slo.slo_collector import (
    COARSE_SECONDS,
    FINE_SECONDS,
    WINDOWS,
    Budget,
)

DAY_SECONDS = 86400.0
MONTH_SECONDS = 30 * DAY_SECONDS


@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 400) | st.floats(400, 4 * DAY_SECONDS),
            st.integers(0, 50),
            st.integers(0, 50),
        ),
        min_size=1,
        max_size=100,
    ),
    st.sampled_from([1, 5, 30]),
)
def test_what_counts_are_the_events_since_the_slot_in_which_a_window_begins(
    steps, days
) -> None:
    budget = Budget(0.95, days * DAY_SECONDS)
    budget.note(0.0, 0, 0)
    events = np.array(steps)
    events[:, 0] = np.cumsum(events[:, 0])
    for (now, *_), (good, bad) in zip(
        events, np.cumsum(events[:, 1:], axis=0), strict=True
    ):
        budget.note(now, good, bad)

    def burn(seconds, slot_seconds):
        first = (now - seconds) // slot_seconds
        _, good, bad = events[events[:, 0] // slot_seconds >= first].sum(axis=0)
        return pytest.approx(bad / (good + bad) / 0.05) if good + bad else None

    for seconds in WINDOWS.values():
        assert budget.burn_rate(now, seconds) == burn(seconds, FINE_SECONDS)
    remaining = budget.remaining_ratio(now)
    spent = None if remaining is None else 1 - remaining
    assert spent == burn(days * DAY_SECONDS, COARSE_SECONDS)


def test_memory_does_not_grow_with_time() -> None:
    budget = Budget(0.99, MONTH_SECONDS)
    sizes = set()
    for day in range(0, 90, 10):
        budget.note(day * 86400.0, day * 100.0, day)
        sizes.add(budget._fine._totals.nbytes + budget._coarse._totals.nbytes)
    assert len(sizes) == 1
    assert sizes.pop() < 300_000


def test_windows_are_as_long_as_their_names_say() -> None:
    units = {"m": 60.0, "h": 3600.0, "d": DAY_SECONDS}
    assert {name: int(name[:-1]) * units[name[-1]] for name in WINDOWS} == WINDOWS
