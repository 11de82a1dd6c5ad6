"""All that is exposed of an objective: events, burn rates, and the budget that is left."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from accesses import access_to
from hypothesis import given
from hypothesis import strategies as st

from exporter import catalogue
from exporter.features.slo.objectives import (
    AvailabilityObjective,
    LatencyObjective,
    SignalObjective,
)
from exporter.features.slo.slo_collector import (
    COARSE_SECONDS,
    FINE_SECONDS,
    WINDOWS,
    Budget,
    SloSettings,
    doubt,
)
from exporter.features.slo.slo_rules import SEVERITIES
from exporter.samples import Sample


def test_an_objective_is_exposed_with_its_events_burn_rates_and_budget() -> None:
    now, exposed = 0.0, []
    access = access_to(
        SimpleNamespace(), clock=lambda: now, exposed=lambda: list(exposed)
    )
    objectives = (
        AvailabilityObjective(name="answers", objective_ratio=0.9, window_days=1),
        LatencyObjective(name="fast", objective_ratio=0.99, threshold_seconds=1),
    )
    collector = SloSettings(objectives=objectives).build(access)

    def collected() -> dict[tuple[str, ...], float]:
        return {(s.spec.name, *s.labels): s.value for s in collector.collect()}

    def of(name: str, ratio: float, good: float, bad: float) -> dict:
        return {
            (catalogue.SLO_OBJECTIVE.name, name): ratio,
            (catalogue.SLO_EVENTS.name, name, "good"): good,
            (catalogue.SLO_EVENTS.name, name, "bad"): bad,
            (catalogue.SLO_DOUBTFUL.name, name): 0,
        }

    fast = of("fast", 0.99, 0, 0)
    assert collected() == of("answers", 0.9, 0, 0) | fast

    now = 60.0
    for outcome, number in (("success", 98), ("failure", 2)):
        exposed.append(Sample(catalogue.REQUESTS, number, ("m", "1", outcome)))
    burning = {(catalogue.SLO_BURN_RATE.name, "answers", w): 0.2 for w in WINDOWS}
    burning |= {(catalogue.SLO_BURNING.name, "answers"): 0}
    left = {(catalogue.SLO_BUDGET.name, "answers"): 0.8}
    expected = of("answers", 0.9, 98, 2) | burning | left | fast
    assert collected() == pytest.approx(expected)

    changed = objectives[1].model_copy(update={"threshold_seconds": 2})
    after = SloSettings(objectives=(changed, objectives[0])).build(access)
    fresh = after.objectives[0]
    after.inherit(collector)
    assert after.objectives == [fresh, collector.objectives[0]]

    now = 80_000.0
    assert collected()[catalogue.SLO_BUDGET.name, "answers"] == pytest.approx(0.8)

    # Two days later nothing of it lies in the budget's window of one.
    now = 2 * 86_400.0
    found = collected()
    assert left.keys().isdisjoint(found)
    assert found[catalogue.SLO_BURN_RATE.name, "answers", "3d"] == pytest.approx(0.2)
    assert (catalogue.SLO_BURN_RATE.name, "answers", "1d") not in found


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
    # A window need not be a whole number of slots.
    st.sampled_from([1, 25.5 / 24, 30]),
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


@pytest.mark.parametrize(
    ("events", "burns"),
    [
        ([(0, 0, 0)], None),
        ([(0, 0, 1)], False),  # one bad event of a quiet hour
        ([(0, 0, 2)], True),
        ([(0, 0, 1), (1800, 0, 1)], True),
        ([(0, 28, 2)], False),  # 13.3 times
        ([(0, 0, 5), (1800, 1, 0)], False),  # not in the last five minutes
        ([(0, 0, 5), (1800, 0, 0)], False),
        ([(0, 0, 5), (7200, 0, 0)], None),
        ([(0, 0, 5), (7200, 0, 1)], False),
    ],
)
def test_a_budget_burns_with_two_bad_events_of_an_hour_or_more(events, burns) -> None:
    budget = Budget(0.995, 30 * DAY_SECONDS)
    budget.note(0.0, 0, 0)
    all_good = all_bad = 0
    for now, good, bad in events:
        all_good, all_bad = all_good + good, all_bad + bad
        budget.note(now, all_good, all_bad)
    assert budget.burns(events[-1][0]) is burns


def test_windows_and_alerts_are_those_of_the_workbook() -> None:
    units = {"m": 60.0, "h": 3600.0, "d": DAY_SECONDS}
    assert {name: int(name[:-1]) * units[name[-1]] for name in WINDOWS} == WINDOWS
    pairs = [pair for severity in SEVERITIES for pair in severity.pairs]
    assert all(WINDOWS[pair.long] == 12 * WINDOWS[pair.short] for pair in pairs)
    spent = [pair.factor * WINDOWS[pair.long] / MONTH_SECONDS for pair in pairs]
    assert spent == pytest.approx([0.02, 0.05, 0.1, 0.1])


AVAILABILITY = AvailabilityObjective(name="a", objective_ratio=0.99, models="digits*")
OTHERS = [
    Sample(catalogue.OUTCOMES_DOUBTFUL, 1, ("other", "1")),
    Sample(catalogue.OUTCOMES_DOUBTFUL, 0, ("digits", "1")),
    Sample(catalogue.UNATTRIBUTED_REQUESTS, 5, ("digits", "1")),
]


def test_doubt_about_one_model_of_an_objective_is_doubt_about_the_objective():
    one = Sample(catalogue.OUTCOMES_DOUBTFUL, 1, ("digits_int8", "1"))
    assert [s.value for s in doubt(AVAILABILITY, [*OTHERS, one])] == [True]


def test_other_models_and_other_numbers_raise_no_doubt():
    assert [s.value for s in doubt(AVAILABILITY, OTHERS)] == [False]


@pytest.mark.parametrize(
    ("objective", "possible"),
    [
        (AVAILABILITY, True),
        (AVAILABILITY.model_copy(update={"source": "probes"}), False),
        (AVAILABILITY.model_copy(update={"source": "access_log"}), False),
        (LatencyObjective(name="l", objective_ratio=0.9, threshold_seconds=1), True),
        (
            SignalObjective(
                name="s",
                objective_ratio=0.9,
                metric="triton_model_serving",
                at_least=1,
            ),
            False,
        ),
    ],
)
def test_only_objectives_on_productions_requests_can_be_doubtful(objective, possible):
    assert bool(doubt(objective, [])) == possible
