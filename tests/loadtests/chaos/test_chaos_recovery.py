"""Recovery from the requests of servers whose failures are known."""

from __future__ import annotations

from bisect import bisect_right
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_outages import poisson, result, run

from loadtests.chaos.measuring.recovery import (
    Recovery,
    RecoverySettings,
    latency_limit,
    recovery_of,
)
from loadtests.chaos.measuring.served import Span, answers_of
from loadtests.errors import PlanError
from loadtests.result import Outcome

if TYPE_CHECKING:
    from loadtests.result import RunResult

INJECT = 5.0
WANTED = RecoverySettings()


def measured(
    load: RunResult,
    inject: float = INJECT,
    reverted: float | None = None,
    wanted: RecoverySettings = WANTED,
    following: float | None = None,
) -> Recovery:
    answers = answers_of(load)
    span = Span(
        kinds=("freeze_server",),
        inject_seconds=inject,
        reverted_seconds=reverted,
        next_seconds=following,
    )
    return recovery_of(answers, span, wanted, latency_limit(answers, wanted, inject))


@pytest.mark.parametrize("rate", [100, 300, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_a_hang_of_a_second_is_reported_as_one(rate: int, seed: int) -> None:
    load = run(poisson(rate, 20, seed), hangs=((INJECT, INJECT + 1),), timeout=5.0)
    found = measured(load, reverted=INJECT + 1)
    assert found.outage is not None
    assert found.outage.ended
    assert found.outage.seconds == pytest.approx(1.0, abs=0.05)
    assert found.state == "recovered"
    assert found.recovered_seconds is not None
    assert found.first_bad_seconds == pytest.approx(INJECT, abs=0.05)
    assert found.recovered_seconds == pytest.approx(INJECT + 1, abs=0.06)


def test_a_timeout_shorter_than_the_hang_changes_nothing_of_its_length() -> None:
    load = run(poisson(300, 20), hangs=((INJECT, INJECT + 3),), timeout=0.5)
    found = measured(load)
    assert found.outage is not None
    assert found.outage.seconds == pytest.approx(3.0, abs=0.05)
    lost = load.requests.count(Outcome.TIMEOUT)
    assert lost == pytest.approx(300 * 2.5, rel=0.2)


def test_a_server_that_refuses_is_out_until_it_answers_rightly() -> None:
    load = run(poisson(100, 20), refuses=((INJECT, 6.6),))
    found = measured(load)
    assert found.outage is not None
    assert found.outage.seconds == pytest.approx(1.6, abs=0.06)
    assert found.recovered_seconds == pytest.approx(6.6, abs=0.06)
    assert found.bad_requests == load.requests.count(Outcome.ERROR)


@pytest.mark.parametrize(("good_for", "first_holds"), [(4.9, False), (5.2, True)])
def test_a_late_relapse_is_not_missed(good_for: float, *, first_holds: bool) -> None:
    """Good for 4.9 s and then bad again is no recovery; it counts from after that."""
    back = 6.0 + good_for
    load = run(poisson(200, 25), refuses=((INJECT, 6.0), (back, back + 0.5)))
    found = measured(load, reverted=6.0)
    assert found.state == "recovered"
    assert found.recovered_seconds == pytest.approx(back + 0.5, abs=0.05)
    assert found.relapses == int(first_holds)
    assert measured(load, reverted=back).relapses == 0


def test_a_relapse_counts_although_it_was_good_already_before_the_fault_was_undone() -> (
    None
):
    load = run(poisson(200, 25), refuses=((INJECT, 6.0), (15.0, 16.0)))
    assert measured(load, reverted=8.0).relapses == 1


def test_all_lost_from_the_start_leaves_no_limit_and_no_claim() -> None:
    found = measured(run(poisson(200, 15), refuses=((0.0, 99.0),)))
    assert found.state == "unknown"
    assert found.limit_seconds is None
    assert found.recovered_seconds is None


def test_no_load_after_the_fault_is_unknown_and_no_outage() -> None:
    due = poisson(200, 30)
    quiet = due[(due < 4.9) | (due > 12.0)]
    found = measured(run(quiet))
    assert found.state == "unknown"
    assert found.outage is not None
    assert found.outage.seconds < 0.05


def test_wrong_answers_are_bad_however_fast_they_come() -> None:
    load = run(poisson(200, 20), lies=((INJECT, 99.0),))
    found = measured(load)
    assert found.state == "not_recovered"
    assert found.outage is not None
    assert not found.outage.ended
    single = run(poisson(200, 20), lies=((INJECT, INJECT + 0.02),))
    assert measured(single).bad_requests == single.requests.count(Outcome.WRONG)


def test_a_late_spell_of_no_window_is_no_relapse_once_it_has_held() -> None:
    """Which happens without any fault; one that is longer, or an error, is a relapse."""
    due = poisson(200, 25)
    down = ((INJECT, 6.0),)
    blip = measured(run(due, refuses=down, slow=((15.0, 15.2),)), reverted=6.0)
    assert blip.state == "recovered"
    assert blip.recovered_seconds == pytest.approx(6.0, abs=0.05)
    assert blip.relapses == 0
    spell = measured(run(due, refuses=down, slow=((15.0, 17.0),)), reverted=6.0)
    assert spell.recovered_seconds == pytest.approx(17.0, abs=0.1)
    assert spell.relapses == 1
    error = measured(run(due, refuses=(*down, (15.0, 15.02))), reverted=6.0)
    assert error.recovered_seconds == pytest.approx(15.0, abs=0.1)
    assert error.relapses == 1


def test_a_late_spell_long_after_a_fault_that_nobody_felt_is_not_its_effect() -> None:
    due = poisson(200, 25)
    late = run(due, slow=((18.0, 18.1),))
    found = measured(late, reverted=7.0)
    assert (found.state, found.first_bad_seconds) == ("unaffected", None)
    assert measured(late, reverted=17.0).state == "recovered"
    long = measured(run(due, slow=((18.0, 20.0),)), reverted=7.0)
    assert long.first_bad_seconds == pytest.approx(18.0, abs=0.05)
    error = run(due, refuses=((18.0, 18.02),))
    assert measured(error, reverted=7.0).state == "recovered"


def test_what_the_sender_never_sent_is_not_good() -> None:
    due = poisson(200, 20)
    load = run(due, refuses=((INJECT, 6.0),))
    outcome = load.requests.outcome.copy()
    never = (due > 6.0) & (due < 16.5)
    outcome[np.flatnonzero(never)[::50]] = Outcome.UNSENT
    found = measured(result(due, load.requests.done, outcome))
    assert found.state == "unknown"
    assert found.recovered_seconds is None


def test_an_interrupted_run_is_judged_by_what_was_sent() -> None:
    due = poisson(200, 30)
    load = run(due, refuses=((INJECT, 6.0),))
    outcome = np.where(due > 9.0, Outcome.UNSENT, load.requests.outcome)
    found = measured(result(due, load.requests.done, outcome, interrupted=True))
    assert found.state == "unknown"
    assert found.reason.startswith("good for the last 3.00 s only")


def test_requests_that_were_under_way_are_hit_as_well() -> None:
    """Sent before the fault and lost to it."""
    due = poisson(200, 20)
    load = run(due, latency=0.05, refuses=((INJECT, 6.0),))
    found = measured(load)
    assert found.first_bad_seconds is not None
    assert INJECT - 0.06 < found.first_bad_seconds < INJECT


def test_another_fault_ends_what_is_said_of_the_one_before() -> None:
    load = run(poisson(200, 40), refuses=((INJECT, 6.0), (20.0, 40.0)))
    first = measured(load, following=20.0)
    assert first.state == "recovered"
    assert first.recovered_seconds == pytest.approx(6.0, abs=0.05)
    assert measured(load, inject=20.0).state == "not_recovered"


def test_a_closed_loop_is_refused() -> None:
    due = poisson(100, 10)
    closed = result(due, due + 0.01, np.full(due.size, Outcome.OK), mode="closed")
    with pytest.raises(PlanError, match="open"):
        answers_of(closed)


# A second way to the same: every window whose start lies between two whole
# milliseconds, request by request, in plain Python.

_MS = 1000


def graded(
    due: list[int], bad: list[bool], late: list[bool], start: int, end: int
) -> list[int]:
    """By start of the window, from `start` on: 1 good, 0 empty, -1 late, -2 failed."""
    grades = []
    for begin in range(start, end - _MS):
        inside = range(bisect_right(due, begin), bisect_right(due, begin + _MS))
        if any(bad[i] for i in inside):
            grades.append(-2)
        elif sum(late[i] for i in inside) * 100 > 5 * len(inside):
            grades.append(-1)
        else:
            grades.append(1 if inside else 0)
    return grades


def judged_slowly(
    due: list[int], bad: list[bool], late: list[bool], start: int
) -> tuple[str, int | None]:
    """State, and when it was recovered in milliseconds."""
    end = due[-1]
    grades = graded(due, bad, late, start, end)
    hold = 5 * _MS - _MS
    if end - start <= _MS:
        return "unknown", None
    if min(grades) >= 0:
        enough = 0 not in grades and end - start >= 5 * _MS
        return ("unaffected" if enough else "unknown"), None
    since: int | None = None
    seen_bad = False
    begin = 0
    for sign, group in groupby(grades, key=lambda g: (g > 0) - (g < 0)):
        spell = list(group)
        seen_bad |= sign < 0
        if sign > 0 and seen_bad and since is None and len(spell) >= hold:
            since = start + begin
        if sign < 0 and (-2 in spell or len(spell) > 2 * _MS):
            since = None
        begin += len(spell)
    if since is not None:
        return "recovered", min(
            at
            for at, no, slow in zip(due, bad, late, strict=True)
            if at > since and not no and not slow
        )
    if grades[-1] >= 0 or end - start < 5 * _MS:
        return "unknown", None
    return "not_recovered", None


@st.composite
def courses(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """When requests are due in whole milliseconds, and how each ends: 0 well, 1 badly,
    2 late."""
    gap = st.integers(20, 400) | st.integers(20, 400) | st.just(1500)
    due, how = [], []
    at = 1000
    for _ in range(draw(st.integers(1, 6))):
        step, kind = draw(gap), draw(st.sampled_from([0, 0, 0, 1, 2]))
        for _ in range(draw(st.integers(1, 40))):
            at += step
            due.append(at)
            how.append(kind)
    return due, how


@settings(max_examples=100)
@given(courses())
def test_the_same_as_window_by_window(course: tuple[list[int], list[int]]) -> None:
    due, how = course
    assert all(a < b for a, b in pairwise(due))
    expected = judged_slowly(due, [h == 1 for h in how], [h == 2 for h in how], 1000)
    at = np.array(due) / _MS
    late = np.array(how) == 2
    outcome = np.where(np.array(how) == 1, Outcome.ERROR, Outcome.OK)
    load = result(at, at + np.where(late, 0.01, 0.0001), outcome)
    wanted = RecoverySettings(latency_limit_seconds=0.005)
    found = measured(load, inject=1.0, wanted=wanted)
    when = found.recovered_seconds
    assert (found.state, None if when is None else round(when * _MS)) == expected
