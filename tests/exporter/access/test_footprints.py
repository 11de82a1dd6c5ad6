"""Learning what a model calls, from what rose in the statistics around requests to it."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.access.call_evidence import Bracket
from exporter.access.footprints import Footprints
from exporter.access.own_traffic import Booking
from exporter.triton.model import ModelSpec

PARENT = ModelSpec("parent", "1", (), (), backend="python")
CHILD, OTHER = ("child", "1"), ("other", "1")
PRESENT = {("parent", "1"), CHILD, OTHER}


def booking(requests, size=1):
    return Booking(requests, requests * size, {size: requests})


def learn(brackets, *, failed=False, footprints=None):
    """Feed brackets as long as they are asked for; how many, and what they called."""
    footprints = footprints or Footprints()
    called = {}
    for count, rises in enumerate(brackets):
        if not footprints.wants_bracket(PARENT, PRESENT):
            return footprints, count, called
        bracket = None if rises is None else Bracket(rises)
        for key, calls in footprints.add(PARENT, bracket, failed=failed).items():
            called[key] = called.get(key, Booking()) + calls
    return footprints, len(brackets), called


def some(called):
    return {key: booking for key, booking in called.items() if booking != Booking()}


def test_a_model_that_calls_nothing_is_known_after_two_quiet_requests():
    footprints, brackets, called = learn([{}] * 20)
    assert brackets == 2
    assert footprints.calls(PARENT) == some(called) == {}


def test_calls_on_a_quiet_server_are_known_exactly_after_six_requests():
    rises = {CHILD: booking(3, 4), OTHER: booking(1)}
    footprints, brackets, called = learn([rises] * 20)
    assert brackets == 6
    assert footprints.calls(PARENT) == rises
    # Those of the requests by which they were learnt are among them.
    assert some(called) == {CHILD: booking(18, 4), OTHER: booking(6)}
    assert footprints.waiting() == {}


def test_until_calls_are_known_what_rose_waits_for_the_decision():
    footprints, _, called = learn([{CHILD: booking(2)}, {CHILD: booking(5)}])
    assert footprints.calls(PARENT) == some(called) == {}
    assert footprints.waiting() == {CHILD: booking(7)}


def test_a_request_without_a_bracket_is_held_back_and_decided_as_the_others():
    # Soon after the last one, none is bracketed: the usual rate could not be told.
    clock = [0.0]
    footprints = Footprints(clock=lambda: clock[0])
    learn([{CHILD: booking(2)}], footprints=footprints)
    assert not footprints.are_known(PARENT)
    assert not footprints.wants_bracket(PARENT, PRESENT)
    assert some(footprints.add(PARENT, None, failed=False)) == {}
    assert footprints.waiting() == {CHILD: booking(4)}
    called = Booking()
    while not footprints.are_known(PARENT):
        clock[0] += 1
        assert footprints.wants_bracket(PARENT, PRESENT)
        bracket = Bracket({CHILD: booking(2)}, began=clock[0])
        called += footprints.add(PARENT, bracket, failed=False).get(CHILD, Booking())
    assert called == booking(2 * 7)
    assert footprints.waiting() == {}


def test_one_bracket_that_misses_what_was_booked_late_decides_nothing():
    rises = {CHILD: booking(1)}
    footprints, *_ = learn([rises, {}, *[rises] * 20])
    assert footprints.calls(PARENT) == rises


@pytest.mark.parametrize("seed", range(20))
def test_beside_bursts_of_other_traffic_calls_are_told_from_it(seed):
    rng = np.random.default_rng(seed)

    def bracket():
        # Bursts: nothing for most of the time, then many at once.
        child, other = rng.integers(1, 50, 2) * (rng.random(2) < 0.5)
        child, other = int(child) + 2, int(other)
        rises = {CHILD: booking(child), OTHER: booking(other)}
        return {key: rise for key, rise in rises.items() if rise.requests}

    footprints, brackets, called = learn([bracket() for _ in range(40)])
    assert brackets <= 16
    assert footprints.calls(PARENT) == {CHILD: booking(2)}
    # Production that rose meanwhile is given back.
    assert some(called) == {CHILD: booking(2 * brackets)}
    assert footprints.waiting() == {}


@pytest.mark.parametrize("calls", [0, 1])
@pytest.mark.parametrize("seed", range(20))
def test_beside_traffic_without_a_gap_little_more_than_what_is_called_is_taken(
    seed, calls
):
    rng = np.random.default_rng(seed)
    footprints, total, began = Footprints(), 0, 0.0
    while footprints.wants_bracket(PARENT, PRESENT):
        # A hundred requests a second, 6 in a bracket of 60 ms; a probe every 2 s.
        rise = int(rng.poisson(6.0)) + calls
        bracket = Bracket({CHILD: booking(rise)}, {}, {CHILD: total}, began, 0.06)
        footprints.add(PARENT, bracket, failed=False)
        total += rise + int(rng.poisson(194.0))
        began += 2.0
    assert footprints.calls(PARENT).get(CHILD, Booking()).requests <= calls + 2


def test_what_one_request_may_call_is_bounded():
    footprints, *_ = learn([{CHILD: booking(10_000)}] * 16)
    assert footprints.calls(PARENT)[CHILD].requests == 64


def test_requests_that_fail_have_calls_of_their_own():
    footprints, *_ = learn([{CHILD: booking(1)}] * 6)
    footprints.add(PARENT, None, failed=True)
    assert footprints.wants_bracket(PARENT, PRESENT)
    learn([{CHILD: booking(2)}] * 6, failed=True, footprints=footprints)
    assert footprints.calls(PARENT) == {CHILD: booking(2)}
    assert some(footprints.add(PARENT, None, failed=False)) == {CHILD: booking(1)}
    assert some(footprints.add(PARENT, None, failed=True)) == {CHILD: booking(2)}


def test_a_bracket_in_which_others_of_ours_raised_a_model_is_no_evidence_on_it():
    footprints = Footprints()
    footprints.wants_bracket(PARENT, PRESENT)
    unclear = Bracket({CHILD: booking(3), OTHER: booking(1)}, {CHILD: booking(2)})
    footprints.add(PARENT, unclear, failed=False)
    rises = {CHILD: booking(1), OTHER: booking(1)}
    _, brackets, called = learn([rises] * 20, footprints=footprints)
    assert brackets == 6
    assert footprints.calls(PARENT) == rises
    # The request in the unclear bracket has called it too.
    assert called[CHILD].requests == 7


def test_a_model_that_gives_no_answer_is_not_bracketed_until_it_does():
    footprints = Footprints()
    assert footprints.wants_bracket(PARENT, PRESENT)
    footprints.unanswered(PARENT)
    assert not footprints.wants_bracket(PARENT, PRESENT)
    footprints.add(PARENT, None, failed=False)
    assert footprints.wants_bracket(PARENT, PRESENT)


def test_requests_without_evidence_are_not_bracketed_for_ever():
    _, brackets, _ = learn([None] * 200)
    assert brackets == 64


def test_a_model_that_comes_may_be_called_from_then_on():
    footprints, *_ = learn([{CHILD: booking(1)}] * 20)
    assert not footprints.wants_bracket(PARENT, PRESENT)
    assert footprints.wants_bracket(PARENT, {*PRESENT, ("new", "1")})
    # What it called before, it still calls.
    assert footprints.calls(PARENT) == {CHILD: booking(1)}


def test_a_model_that_is_loaded_again_is_learnt_anew_and_its_undecided_calls_are_told():
    footprints, *_ = learn([{CHILD: booking(1)}] * 3)
    assert footprints.forget(("parent", "1")) == {CHILD: booking(3)}
    assert footprints.calls(PARENT) == footprints.waiting() == {}
    assert footprints.wants_bracket(PARENT, PRESENT)


@pytest.mark.parametrize("calls", [0, 1, 3])
@pytest.mark.parametrize("seed", range(10))
def test_where_other_requests_of_ours_are_always_under_way_theirs_are_subtracted(
    seed, calls
):
    rng = np.random.default_rng(seed)
    footprints, tries = Footprints(), 0
    # One that begins or ends at the edge is booked in the bracket or is not.
    while footprints.wants_bracket(PARENT, PRESENT):
        ours = int(rng.integers(2, 6))
        booked = max(0, calls + ours + int(rng.choice([-1, 0, 0, 0, 1])))
        bracket = Bracket({CHILD: booking(booked)}, {CHILD: booking(ours)})
        footprints.add(PARENT, bracket, failed=False)
        tries += 1
    assert tries == 16
    assert footprints.calls(PARENT) == ({CHILD: booking(calls)} if calls else {})
    assert footprints.waiting() == {}


@pytest.mark.parametrize("seed", range(5))
def test_what_a_model_is_asked_for_all_the_time_is_hardly_held_back(seed):
    rng = np.random.default_rng(seed)
    footprints, total, began = Footprints(), 0, 0.0
    for _ in range(15):
        assert footprints.wants_bracket(PARENT, PRESENT)
        # A thousand requests a second, 60 in a bracket, of which one call is ours.
        rise = int(rng.poisson(60.0)) + 1
        bracket = Bracket({CHILD: booking(rise)}, {}, {CHILD: total}, began, 0.06)
        footprints.add(PARENT, bracket, failed=False)
        total, began = total + rise + int(rng.poisson(4940.0)), began + 5.0
    # All of the first bracket, of which no rate is known yet; 850 without the rate.
    assert footprints.waiting()[CHILD].requests <= 61 + 25 + 14 * 8


def test_reading_statistics_takes_a_small_share_of_the_time():
    now = [0.0]
    footprints = Footprints(credit_seconds=1.0, clock=lambda: now[0])
    brackets = 0
    for _ in range(10_000):
        now[0] += 0.1
        footprints.forget((PARENT.name, PARENT.version))
        if footprints.wants_bracket(PARENT, PRESENT):
            brackets += 1
            footprints.has_read(0.05)
    # A second at once, 2 % of a thousand seconds after that.
    assert 0.9 * 21 < brackets * 0.05 <= 21.1


def test_memory_for_pairs_of_models_is_bounded():
    footprints = Footprints()
    present = {(f"m{number}", "1") for number in range(500)}
    specs = [ModelSpec(name, "1", (), (), backend="python") for name, _ in present]
    assert sum(footprints.wants_bracket(spec, present) for spec in specs) == 20
    assert footprints.add(specs[-1], Bracket({}), failed=False) == {}


def test_calls_that_were_never_made_are_corrected():
    # Production in every bracket while it was learnt, and none afterwards.
    footprints, *_ = learn([{CHILD: booking(1)}] * 6)
    assert footprints.calls(PARENT) == {CHILD: booking(1)}
    checks = 0
    for _ in range(100):
        if footprints.wants_check(PARENT):
            checks += 1
            footprints.add(PARENT, Bracket({}), failed=False)
    assert checks == 2
    assert footprints.calls(PARENT) == {}


def test_calls_that_are_made_stay_known_though_one_is_booked_late():
    footprints, *_ = learn([{CHILD: booking(2)}] * 6)
    for number in range(60):
        assert footprints.wants_check(PARENT) == (number % 10 == 9)
        if number % 10 == 9:
            rises = {} if number == 29 else {CHILD: booking(2 + number % 3)}
            footprints.add(PARENT, Bracket(rises), failed=False)
    assert footprints.calls(PARENT) == {CHILD: booking(2)}


def test_requests_of_ours_that_surely_raised_a_model_are_no_calls():
    footprints = Footprints(space_seconds=0.0)
    for _ in range(16):
        assert footprints.wants_bracket(PARENT, PRESENT)
        rises = {CHILD: booking(4)}
        bracket = Bracket(rises, ours=rises, surely_ours={CHILD: 4})
        footprints.add(PARENT, bracket, failed=False)
        if not footprints.wants_bracket(PARENT, PRESENT):
            break
    assert footprints.calls(PARENT) == {}


def test_brackets_of_one_model_leave_time_to_see_its_usual_rate():
    now = [100.0]
    footprints = Footprints(clock=lambda: now[0])
    assert footprints.wants_bracket(PARENT, PRESENT)
    bracket = Bracket({CHILD: booking(1)}, began=100.0, seconds=0.1)
    footprints.add(PARENT, bracket, failed=False)
    now[0] = 100.4
    assert not footprints.wants_bracket(PARENT, PRESENT)
    now[0] = 100.6
    assert footprints.wants_bracket(PARENT, PRESENT)


@pytest.mark.parametrize("bracket", [None, Bracket({})])
def test_what_rose_around_the_only_failure_is_not_held_back_for_ever(bracket):
    footprints, *_ = learn([{CHILD: booking(8)}], failed=True)
    assert footprints.waiting() == {CHILD: booking(8)}
    called = [
        some(footprints.add(PARENT, bracket, failed=False)).get(CHILD) for _ in range(9)
    ]
    # It is nobody's for sure: ours, as far as it shows, but unattributed.
    assert called == [*[None] * 7, booking(8), None]
    assert footprints.waiting() == {}


@pytest.mark.parametrize(("others", "called"), [(0, 1), (40, 0)])
def test_a_model_that_is_not_asked_any_more_is_decided_on_by_what_is_known(
    others, called
):
    now = [0.0]
    rng = np.random.default_rng(1)
    footprints, total = Footprints(clock=lambda: now[0]), 0
    for _ in range(5):
        assert footprints.wants_bracket(PARENT, PRESENT)
        rise = int(rng.poisson(others)) + 1
        bracket = Bracket({CHILD: booking(rise)}, {}, {CHILD: total}, now[0], 0.06)
        footprints.add(PARENT, bracket, failed=False)
        total += rise + int(rng.poisson(others * 1.94 / 0.06))
        now[0] += 2.0
    now[0] = 37.9
    assert footprints.overdue() == {}
    assert footprints.waiting()[CHILD].requests >= 5
    now[0] = 38.1
    calls = some(footprints.overdue()).get(CHILD, Booking())
    assert calls.requests == called * 5
    assert footprints.waiting() == footprints.overdue() == {}
    # It begins anew when it is asked again.
    assert footprints.wants_bracket(PARENT, PRESENT)
