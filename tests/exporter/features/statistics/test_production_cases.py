"""Production's share of the counters, one case each, to be read."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from simulated_triton import KEY, Client, Own, Simulation, Triton

from exporter.access.own_traffic import Booking, OwnCounts
from exporter.features.statistics.own_share import UNRESOLVED_READS, OwnShare
from exporter.features.statistics.production_counts import (
    PHASES,
    Production,
)
from exporter.triton.protocol_types import Duration, ModelStatistics


def done(count, size):
    return OwnCounts(ok=count, done=Booking(count, count * size, {size: count}))


def test_one_of_ours_merged_into_a_batch_of_production_takes_one_single_at_most():
    merged = Triton()
    merged.success, merged.inferences, merged.batches = 3, 3, Counter({3: 1})
    production = Production(OwnCounts())
    own = done(1, 1)
    production.advance(None, merged.statistics(), own)
    assert production.totals.success == production.totals.inferences == 2
    assert +Counter(production.totals.batches) == {3: 1}
    before = merged.statistics()
    merged.batches[1] += 5
    merged.success += 5
    merged.inferences += 5
    production.advance(before, merged.statistics(), own)
    assert production.totals.batches[1] == 4
    assert production.totals.success == 7


@pytest.mark.parametrize("size", [1, 4])
def test_ours_that_a_reset_took_along_cost_production_nothing(size):
    before, anew, later = Triton(), Triton(), Triton()
    before.book(Client(0))
    later.book(Client(0, size))
    later.book(Client(0, size))
    lost, production = done(2, size), Production(OwnCounts())
    production.advance(None, before.statistics(), OwnCounts())
    # Answered, and gone with the counters before they were booked.
    production.advance(before.statistics(), anew.statistics(), lost, lost)
    production.advance(anew.statistics(), later.statistics(), lost, lost)
    totals = production.totals
    assert (totals.success, totals.inferences) == (3, 1 + 2 * size)
    assert totals.executions == 3


def test_ours_that_ended_while_the_new_counters_were_read_are_still_looked_for():
    before, anew, later = Triton(), Triton(), Triton()
    before.book(Client(0))
    later.book(Own(0, 0, 0))
    later.book(Client(0))
    production = Production(OwnCounts())
    production.advance(None, before.statistics(), OwnCounts())
    production.advance(before.statistics(), anew.statistics(), done(3, 1), done(2, 1))
    production.advance(anew.statistics(), later.statistics(), done(3, 1), done(3, 1))
    assert production.totals.success == 2


NUMBERS = ["inference_count", "execution_count"]
DURATIONS = ["success", "fail", "queue", *PHASES, "cache_hit", "cache_miss"]


@pytest.mark.parametrize(
    "lower",
    [{name: 4} for name in NUMBERS]
    + [{name: Duration(4, 50)} for name in DURATIONS]
    + [{name: Duration(5, 49)} for name in DURATIONS],
)
def test_any_number_that_falls_is_a_reset(lower):
    values = dict.fromkeys(NUMBERS, 5) | dict.fromkeys(DURATIONS, Duration(5, 50))
    before = ModelStatistics(*KEY, **values)
    production = Production(OwnCounts())
    production.advance(before, before, OwnCounts())
    assert production.resets == 0
    production.advance(before, ModelStatistics(*KEY, **values | lower), OwnCounts())
    assert production.resets == 1


@pytest.mark.parametrize("earlier", [0, 1])
def test_two_of_ours_merged_into_one_batch_are_no_execution_of_production(earlier):
    """Nor is the execution of a client, of the read before, taken for one of both."""
    production, triton, own = Production(OwnCounts()), Triton(), done(2, 1)
    reads = [triton.statistics()]
    for _ in range(earlier):
        triton.book(Client(0))
    reads.append(triton.statistics())
    production.advance(*reads, OwnCounts())
    triton.success += 2
    triton.inferences += 2
    triton.batches[2] += 1
    before = reads[-1]
    for _ in range(3):
        production.advance(before, triton.statistics(), own)
        before = triton.statistics()
    assert production.totals.executions == earlier
    assert bool(production.totals.busy_ns) == bool(earlier)
    # Nor do they hide one that comes later.
    triton.book(Client(0))
    production.advance(before, triton.statistics(), own)
    assert production.totals.executions == production.totals.success == earlier + 1


def test_an_execution_may_be_counted_one_read_after_its_inference():
    production, early, whole = Production(OwnCounts()), Triton(), Triton()
    whole.book(Client(0))
    early.success = early.inferences = 1
    production.advance(Triton().statistics(), early.statistics(), OwnCounts())
    production.advance(early.statistics(), whole.statistics(), OwnCounts())
    assert production.totals.executions == 1


REFUSED = Own(5, 6, 6, ending="refused")


@pytest.mark.parametrize(
    ("own", "clients", "booked"),
    [
        ([Own(11, 14, 15, ending="failed")], [Client(25)], 0),
        ([Own(11, 14, 15, ending="as_success")], [Client(25)], 1),
        (
            [
                Own(3, 12, 14, ending="failed"),
                Own(11, 14, 15, ending="failed"),
                Own(12, 16, 17, ending="as_success"),
            ],
            [Client(25)],
            1,
        ),
        # The failure was a client's: the next of ours has one of its own.
        (
            [Own(31, 34, 35, ending="as_success")],
            [Client(15, ok=False), Client(45)],
            1,
        ),
    ],
)
def test_a_failure_that_was_taken_for_a_refused_request_is_no_booked_success(
    own, clients, booked
):
    """The refused one is never counted; the next failure shows while it is expected."""
    totals = Simulation([REFUSED, *own], clients).production.totals
    assert totals.failures_booked_as_success == booked


def test_one_we_gave_up_on_is_ours_when_it_shows_late():
    production = Production(OwnCounts())
    own = OwnCounts(unresolved=Booking(2, 2, {1: 2}))
    nothing = Triton().statistics()
    # An overloaded server executes it minutes later.
    for _ in range(UNRESOLVED_READS - 1):
        production.advance(nothing, nothing, own)
    after = Triton()
    for _ in range(2):
        after.book(Own(0, 0, 0))
    after.book(Client(0))
    production.advance(nothing, after.statistics(), own)
    totals = production.totals
    assert totals.success == totals.inferences == totals.executions == 1


@pytest.mark.parametrize("ours_fail", [False, True])
@pytest.mark.parametrize("failures_each", [1, 2])
def test_what_we_gave_up_on_is_expected_once_and_not_as_both(ours_fail, failures_each):
    """Triton counts two failures for one request to an ensemble."""
    production = Production(OwnCounts())
    second = 20 * (failures_each - 1)
    own = OwnCounts(unresolved=Booking(20, 20, {1: 20}, second))
    ours = 20 * failures_each
    late = [(0, ours // 2 + 1), (0, ours)] if ours_fail else [(20, 0)]
    reads = [
        ModelStatistics("m", "1", success=Duration(s), fail=Duration(f))
        for s, f in ((0, 0), *late, (20, ours))
    ]
    for before, after in itertools.pairwise(reads):
        production.advance(before, after, own)
    totals = production.totals
    assert (totals.success, totals.failure) == ((20, 0) if ours_fail else (0, ours))
    assert totals.unattributed == (ours if ours_fail else 20)


def test_what_is_taken_back_a_second_time_is_ours():
    share = OwnShare()
    assert share.production(0, 0, 5) == 5
    share.refuse(2, for_now=False)
    assert share.production(0, 0, 3) == 5
    share.refuse(5, for_now=False)
    assert share.undecided
    assert share.production(0, 0, 0) == 3
    assert not share.undecided
    assert share.production(1, 0, 0) == 0
    assert share.undecided


def test_what_was_given_up_before_the_base_is_not_expected_after_it():
    own = OwnCounts(unresolved=Booking(20, 20, {1: 20}))
    production = Production(own)
    reads = [
        ModelStatistics("m", "1", success=Duration(count), fail=Duration(count))
        for count in (0, 20)
    ]
    production.advance(*reads, own)
    assert (production.totals.success, production.totals.failure) == (20, 20)
    assert production.totals.unattributed == 0


def test_one_we_gave_up_on_is_not_waited_for_for_ever():
    production = Production(OwnCounts())
    own = OwnCounts(unresolved=Booking(1, 1, {1: 1}))
    nothing, after = Triton().statistics(), Triton()
    for _ in range(UNRESOLVED_READS):
        production.advance(nothing, nothing, own)
    after.book(Client(0))
    production.advance(nothing, after.statistics(), own)
    assert production.totals.success == production.totals.executions == 1


@pytest.mark.parametrize("is_known_before", [False, True])
def test_what_a_server_that_is_gone_was_asked_is_not_looked_for_in_the_next(
    is_known_before,
):
    production = Production(OwnCounts())
    before, after = Triton(), Triton()
    for _ in range(5):
        before.book(Client(0))
    after.book(Client(0))
    production.advance(Triton().statistics(), before.statistics(), OwnCounts())
    own = OwnCounts(unresolved=Booking(9, 9, {1: 9}))
    if is_known_before:
        production.advance(before.statistics(), before.statistics(), own)
    production.advance(before.statistics(), after.statistics(), own)
    assert production.totals.success == production.totals.executions == 6
