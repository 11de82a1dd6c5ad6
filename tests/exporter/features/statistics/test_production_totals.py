"""Production's totals against a simulated Triton that counts everybody's requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import assume, example, given
from hypothesis import strategies as st
from simulated_triton import (
    LAG_TICKS,
    LOOK_TICKS,
    OWN,
    OWN_IN_DOUBT,
    PHASE_NS,
    PRODUCTION,
    TICKS,
    Client,
    Own,
    Simulation,
    Triton,
    truth_of,
)

from exporter.access.own_traffic import Booking, OwnCounts
from exporter.features.statistics.production_counts import PHASES, Production, Totals
from exporter.triton.protocol_types import BatchStatistics, Duration, ModelStatistics

ONE_EXECUTION_BESIDE_OWN_BATCHES_THAT_ARE_BOOKED_LATE = (
    [*(Own(1, 1, 1) for _ in range(6)), Own(10, 45, 51, 4), Own(20, 55, 61, 4)],
    [Client(1, 1, True)],
)


@example(*ONE_EXECUTION_BESIDE_OWN_BATCHES_THAT_ARE_BOOKED_LATE)
@given(OWN, PRODUCTION)
def test_totals_end_exactly_right_once_we_pause(own, clients):
    totals, truth = Simulation(own, clients).seen[-1]
    assert totals == truth


@given(OWN_IN_DOUBT, PRODUCTION)
def test_production_lies_between_the_totals_and_what_is_unattributed(own, clients):
    simulation = Simulation(own, clients)
    before = Counter()
    for totals, truth in simulation.seen:
        assert before <= totals <= truth
        before = totals
    totals, truth = simulation.seen[-1]
    most = requests(totals) + simulation.production.totals.unattributed
    assert requests(truth) <= most


def requests(counts):
    return counts["success"] + counts["failure"]


@given(OWN_IN_DOUBT)
def test_failures_booked_as_success_are_counted_where_nothing_else_runs(own):
    booked_so = sum(request.ending == "as_success" for request in own)
    totals = Simulation(own).production.totals
    assert totals.failures_booked_as_success <= booked_so
    if booked_so == len(own):
        # Nothing else could have been taken for it.
        assert totals.failures_booked_as_success == booked_so


@given(OWN_IN_DOUBT)
def test_own_traffic_alone_is_exactly_nothing(own):
    simulation = Simulation(own)
    for totals, _ in simulation.seen:
        assert not +totals
    totals = simulation.production.totals
    assert totals.request_ns == totals.queue_ns == totals.busy_ns == 0
    assert set(totals.compute_ns.values()) == {0}


@given(PRODUCTION)
def test_without_own_traffic_everything_is_production_at_once_times_included(clients):
    simulation = Simulation((), clients)
    for totals, truth in simulation.seen:
        assert totals == truth
    totals, counted = simulation.production.totals, simulation.truth
    assert totals.request_ns == counted.success.ns
    assert totals.queue_ns == counted.queue.ns
    assert totals.compute_ns == {p: getattr(counted, p).ns for p in PHASES}
    assert totals.busy_ns == len(PHASES) * PHASE_NS * counted.execution_count


def test_times_are_shared_as_requests_and_busy_time_as_executions_are():
    def read(times):
        phases = [Duration(10 * times, part * times) for part in (100, 300, 50)]
        alike = {name: Duration(10 * times, 70 * times) for name in PHASES}
        return ModelStatistics(
            *("m", "1", 10 * times, 10 * times),
            success=Duration(10 * times, 1000 * times),
            queue=Duration(10 * times, 200 * times),
            batches=(BatchStatistics(1, *phases),),
            **alike,
        )

    production = Production(OwnCounts())
    own = OwnCounts(ok=4, done=Booking(4, 4, {1: 4}))
    production.advance(read(0), read(1), own)
    expected = Totals(
        *(6, 0, 6, 6),
        busy_ns=270,
        queue_ns=120,
        request_ns=600,
        compute_ns=dict.fromkeys(PHASES, 42),
        batches={1: 6},
    )
    assert production.totals == expected
    assert production.all_busy_ns == 450
    production.advance(read(1), read(1), own)
    assert production.totals == expected
    # Nothing of ours since: all of it is production's.
    production.advance(read(1), read(2), own)
    assert production.totals == Totals(
        *(16, 0, 16, 16),
        busy_ns=720,
        queue_ns=320,
        request_ns=1600,
        compute_ns=dict.fromkeys(PHASES, 112),
        batches={1: 16},
    )


@given(OWN, PRODUCTION, st.lists(st.integers(1, 80), min_size=1, max_size=3))
def test_a_reset_costs_at_most_what_happened_since_the_last_look(own, clients, resets):
    simulation = Simulation(own, clients, resets)
    # One after which as much is counted at once as before it cannot be seen.
    assume(simulation.production.resets == len({-(-r // TICKS) for r in resets}))
    before, lost, kept = Counter(), 0, 0
    for totals, _ in simulation.seen:
        assert before <= totals
        before = totals
    for reset in resets:
        look = reset - reset % TICKS
        # Booked since the look before: lost with the counters. Ours count as well:
        # they are looked for among the requests that come after.
        window = (look - TICKS - LAG_TICKS, reset)
        lost += sum(window[0] <= c.booked <= window[1] for c in clients)
        lost += sum(window[0] <= o.booked <= window[1] for o in own)
        # Under way at the reset, or booked only after the look that saw it.
        until = look + TICKS + LOOK_TICKS + LAG_TICKS
        kept += sum(o.started <= until and o.booked >= look for o in own)
    _, truth = simulation.seen[-1]
    for counter in ("success", "failure"):
        assert truth[counter] - lost <= before[counter] <= truth[counter] + kept


ONE_THAT_WAS_ANSWERED_AND_NEVER_BOOKED = (
    [*(Own(1, 1, 1) for _ in range(7)), Own(1, 25, 31)],
    [Client(1, 1, True)],
    31,
    41,
)
ONE_WHOSE_SERVER_DIED_BEFORE_IT_BOOKED = (
    [*(Own(1, 1, 1) for _ in range(5)), Own(1, 35, 41)],
    [],
    36,
    41,
)

THE_FIRST_OF_ITS_SIZE_WHOSE_SERVER_DIED_BEFORE_A_LOOK = (
    [Own(34, 34, 34)],
    [Client(1, 1, False), Client(41, 1, True)],
    35,
    41,
)


@example(*THE_FIRST_OF_ITS_SIZE_WHOSE_SERVER_DIED_BEFORE_A_LOOK)
@example(*ONE_THAT_WAS_ANSWERED_AND_NEVER_BOOKED)
@example(*ONE_WHOSE_SERVER_DIED_BEFORE_IT_BOOKED)
@given(OWN, PRODUCTION, st.integers(31, 40), st.integers(41, 60))
def test_a_restart_that_a_look_saw_costs_only_what_nobody_had_read(
    own, clients, died, back
):
    away = range(died, back)
    ours = [o for o in own if o.started not in away]
    for place, request in enumerate(ours):
        if request.started < died <= request.finished:
            # Its connection ends with the server.
            ours[place] = replace(request, finished=died, ending="unreached")
        elif request.started < died <= request.booked:
            # Answered, and its server dead before the books: the next one knows nothing of it.
            ours[place] = replace(request, booked=died)
    theirs = [c for c in clients if c.booked not in away]
    simulation = Simulation(ours, theirs, away=away)
    # One after which as much is counted at once as before it cannot be seen.
    assume(simulation.production.resets == 1)
    unread = Triton()
    for client in theirs:
        # The last look before it was at 30, and at 40 where it lived until then.
        if (died - 1) // TICKS * TICKS < client.booked < died:
            unread.book(client)
    last_look = (died - 1) // TICKS * TICKS
    # Neither done by the last look nor, if they were, surely booked by it.
    under_way = [
        o
        for o in ours
        if o.started <= last_look + LOOK_TICKS
        and max(o.booked, o.finished) >= last_look
    ]
    totals, truth = simulation.seen[-1]
    expected = truth - truth_of(unread.statistics())
    assert totals <= expected
    for counter in ("success", "failure"):
        assert expected[counter] - totals[counter] <= len(under_way)
    if not under_way:
        assert totals == expected


@given(OWN, PRODUCTION, st.sampled_from([30, 40]))
def test_own_requests_under_way_at_the_first_look_cost_at_most_themselves(
    own, clients, first_look
):
    totals, truth = Simulation(own, clients, first_look=first_look).seen[-1]
    early = Triton()
    for client in clients:
        if client.booked <= first_look:
            early.book(client)
    expected = truth - truth_of(early.statistics())
    around = [
        o
        for o in own
        if o.started <= first_look + LOOK_TICKS
        and max(o.booked, o.finished) >= first_look
    ]
    for counter in ("success", "failure"):
        assert abs(totals[counter] - expected[counter]) <= len(around)
    if not around:
        assert totals == expected
