"""Burn rates and budgets against brute force over the full list of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.features.slo.error_budget import FINE_SECONDS, WINDOWS, Budget

MONTH_SECONDS = 30 * 86400.0


def test_without_events_nothing_is_known() -> None:
    budget = Budget(0.99, MONTH_SECONDS)
    budget.note(0.0, 0, 0)
    assert budget.burn_rate(10.0, WINDOWS["5m"]) is None
    assert budget.remaining_ratio(10.0) is None


def test_burning_at_one_means_as_many_bad_events_as_allowed() -> None:
    budget = Budget(0.99, MONTH_SECONDS)
    budget.note(0.0, 0, 0)
    budget.note(60.0, 99, 1)
    assert budget.burn_rate(60.0, WINDOWS["1h"]) == pytest.approx(1.0)
    assert budget.remaining_ratio(60.0) == pytest.approx(0.0)


def test_what_lies_before_the_window_does_not_count() -> None:
    budget = Budget(0.9, MONTH_SECONDS)
    for second in range(0, 3600, 5):
        bad = min(second, 600)
        budget.note(float(second), second - bad, bad)
    assert budget.burn_rate(3595.0, WINDOWS["5m"]) == 0
    assert budget.burn_rate(3595.0, WINDOWS["1h"]) > 1


@given(
    st.lists(
        st.tuples(st.floats(0.1, 400), st.integers(0, 50), st.integers(0, 50)),
        min_size=1,
        max_size=200,
    ),
    st.sampled_from(sorted(WINDOWS)),
)
def test_burn_rate_is_that_of_the_events_within_one_slot_of_the_window(
    steps, window
) -> None:
    budget = Budget(0.95, MONTH_SECONDS)
    now = good = bad = 0.0
    events = []
    budget.note(now, good, bad)
    for pause, more_good, more_bad in steps:
        now += pause
        good += more_good
        bad += more_bad
        events.append((now, more_good, more_bad))
        budget.note(now, good, bad)
    seconds = WINDOWS[window]
    rate = budget.burn_rate(now, seconds)

    def burn(start: float) -> float | None:
        inside = [(g, b) for when, g, b in events if when > start]
        total = sum(g + b for g, b in inside)
        return sum(b for _, b in inside) / total / 0.05 if total else None

    # The window's edge lies somewhere in its slot: one of the possible cuts is right.
    edges = [now - seconds - FINE_SECONDS, now - seconds + FINE_SECONDS]
    cuts = [when for when, _, _ in events if edges[0] <= when <= edges[1]]
    possible = [burn(cut) for cut in (*edges, *cuts)]
    assert any(
        rate == expected or (rate is not None and expected == pytest.approx(rate))
        for expected in possible
    )


def test_memory_does_not_grow_with_time() -> None:
    budget = Budget(0.99, MONTH_SECONDS)
    sizes = set()
    for day in range(0, 90, 10):
        budget.note(day * 86400.0, day * 100.0, day)
        sizes.add(budget._fine._totals.nbytes + budget._coarse._totals.nbytes)
    assert len(sizes) == 1
    assert sizes.pop() < 300_000
