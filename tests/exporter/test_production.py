"""Production's totals against a simulated Triton that counts everybody's requests."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from exporter import errors
from exporter.collectors.base import Access
from exporter.collectors.production import (
    PHASES,
    UNRESOLVED_LOOKS,
    OwnShare,
    Production,
    cross_checked,
)
from exporter.collectors.statistics import StatisticsSettings
from exporter.inventory import InventoryBoard
from exporter.mirror import MirrorHub
from exporter.own_traffic import OwnCounts, OwnTraffic
from exporter.settings import ModelFilter
from exporter.spans import SpanBuffer
from exporter.testing import UNAVAILABLE, Body, FakeModel, FakeTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient
from exporter.triton.model import BatchStatistics, Duration, ModelStatistics

PATIENT = settings(deadline=None)  # a busy machine is no failure
KEY = ("m", "1")
TICKS = 10  # from look to look
LOOK_TICKS = 3  # from reading the statistics to reading the ledger
LAG_TICKS = 6  # Triton books at the latest so long after the answer
REQUEST_NS, PHASE_NS = 1000, 100


@dataclass(frozen=True)
class Own:
    """One of ours: Triton books it at `booked`, the answer is here at `finished`."""

    started: int
    finished: int
    booked: int
    batch: int = 1
    ending: str = "ok"


@dataclass(frozen=True)
class Client:
    """One of production's."""

    booked: int
    batch: int = 1
    ok: bool = True


@dataclass
class Triton:
    """Cumulative counters of one model, as the statistics API has them."""

    success: int = 0
    fail: int = 0
    inferences: int = 0
    batches: Counter = field(default_factory=Counter)

    def book(self, request: Own | Client) -> None:
        ok = request.ok if isinstance(request, Client) else request.ending == "ok"
        self.success += ok
        self.fail += not ok
        if ok:
            self.inferences += request.batch
            self.batches[request.batch] += 1

    def statistics(self) -> ModelStatistics:
        def times(count: int) -> Duration:
            return Duration(count, count * PHASE_NS)

        return ModelStatistics(
            *KEY,
            inference_count=self.inferences,
            execution_count=sum(self.batches.values()),
            success=Duration(self.success, self.success * REQUEST_NS),
            fail=Duration(self.fail, self.fail * REQUEST_NS),
            queue=times(self.success),
            compute_input=times(self.success),
            compute_infer=times(self.success),
            compute_output=times(self.success),
            batches=tuple(
                BatchStatistics(size, times(n), times(n), times(n))
                for size, n in sorted(self.batches.items())
            ),
        )


ENDINGS = {
    "ok": None,
    "failed": errors.ModelError("x"),
    "refused": errors.UnavailableError("x"),
}


class Simulation:
    """Plays requests in the order of their ticks and looks every TICKS."""

    def __init__(self, own=(), clients=(), resets=(), first_look=0):
        self.ledger = OwnTraffic(run_id="test")
        self.triton = Triton()
        self.production = None
        self.before = None
        self.seen = []  # (totals, truth) at each look
        self._open = {}
        events = [(tick, 0, self._reset, None) for tick in resets]
        events += [(c.booked, 1, self.triton.book, c) for c in clients]
        for request in own:
            events.append((request.started, 1, self._begin, request))
            if request.ending != "refused":
                events.append((request.booked, 2, self.triton.book, request))
            events.append((request.finished, 3, self._end, request))
        last = max([first_look, *(event[0] for event in events)])
        for look in range(first_look, last + 4 * TICKS, TICKS):
            events.append((look, 4, self._read, None))
            events.append((look + LOOK_TICKS, 5, self._look, None))
        self._truth = Triton()
        for event in sorted(events, key=lambda event: event[:2]):
            _, _, act, request = event
            act(*(() if request is None else (request,)))
            if isinstance(request, Client):
                self._truth.book(request)

    def _begin(self, request):
        context = self.ledger.request([(KEY, request.batch)])
        context.__enter__()
        self._open[id(request)] = context

    def _end(self, request):
        error = ENDINGS[request.ending]
        context = self._open.pop(id(request))
        try:
            context.__exit__(type(error) if error else None, error, None)
        except errors.TritonError:
            assert error is not None

    def _reset(self):
        self.triton.__init__()

    def _read(self):
        if self.production is None:
            self.production = Production(self.ledger.counts(KEY))
        self.raw = self.triton.statistics()
        self.ours = self.ledger.counts(KEY)
        self.truth = self._truth.statistics()

    def _look(self):
        before = self.raw if self.before is None else self.before
        own = self.ledger.counts(KEY)
        self.production.advance(before, self.raw, own, self.ours)
        self.before = self.raw
        totals = self.production.totals
        self.seen.append((counts_of(totals), truth_of(self.truth)))


def counts_of(totals):
    sizes = {f"batch {size}": n for size, n in totals.batches.items() if n}
    return Counter(
        success=totals.success,
        failure=totals.failure,
        inferences=totals.inferences,
        executions=totals.executions,
        **sizes,
    )


def truth_of(statistics):
    sizes = {
        f"batch {batch.batch_size}": batch.compute_infer.count
        for batch in statistics.batches
    }
    return Counter(
        success=statistics.success.count,
        failure=statistics.fail.count,
        inferences=statistics.inference_count,
        executions=statistics.execution_count,
        **sizes,
    )


BATCHES = st.sampled_from([1, 1, 1, 4])


@st.composite
def own_requests(draw, endings=("ok", "ok", "failed", "refused")):
    started = draw(st.integers(1, 60))
    finished = started + draw(st.integers(0, 35))
    booked = draw(st.integers(started, finished + LAG_TICKS))
    return Own(started, finished, booked, draw(BATCHES), draw(st.sampled_from(endings)))


CLIENTS = st.builds(Client, st.integers(1, 80), BATCHES, st.booleans())
OWN = st.lists(own_requests(), max_size=8)
PRODUCTION = st.lists(CLIENTS, max_size=12)


@PATIENT
@given(OWN, PRODUCTION)
def test_totals_end_exactly_right_once_we_pause(own, clients):
    totals, truth = Simulation(own, clients).seen[-1]
    assert totals == truth


@PATIENT
@given(OWN, PRODUCTION)
def test_totals_never_fall_and_never_run_ahead_of_production(own, clients):
    before = Counter()
    for totals, truth in Simulation(own, clients).seen:
        assert before <= totals <= truth
        before = totals


@PATIENT
@given(OWN)
def test_own_traffic_alone_is_exactly_nothing(own):
    simulation = Simulation(own)
    for totals, _ in simulation.seen:
        assert not +totals
    totals = simulation.production.totals
    assert totals.request_ns == totals.queue_ns == totals.busy_ns == 0
    assert set(totals.compute_ns.values()) == {0}


@PATIENT
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


@PATIENT
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


@PATIENT
@given(OWN, PRODUCTION, st.sampled_from([30, 40]))
def test_what_was_there_before_us_does_not_count(own, clients, first_look):
    quiet = [
        o
        for o in own
        if max(o.booked, o.finished) < first_look or o.started > first_look + LOOK_TICKS
    ]
    totals, truth = Simulation(quiet, clients, first_look=first_look).seen[-1]
    early = Triton()
    for client in clients:
        if client.booked <= first_look:
            early.book(client)
    assert totals == truth - truth_of(early.statistics())


@PATIENT
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


# One case each, to be read.


def looks(share, *steps):
    return [share.production(*step) for step in steps]


def test_one_finished_after_the_statistics_were_read_is_waited_for():
    # The ledger already has it, the counters will at the next look.
    assert looks(OwnShare(), (1, 0, 0), (1, 0, 1)) == [0, 0]


def test_one_in_flight_is_held_back_and_given_back():
    assert looks(OwnShare(), (0, 1, 5), (0, 0, 0)) == [4, 1]
    assert looks(OwnShare(), (0, 1, 5), (1, 0, 0)) == [4, 0]


def test_one_that_is_never_booked_is_waited_for_during_one_look_only():
    assert looks(OwnShare(), (1, 0, 0), (1, 0, 0), (1, 0, 1)) == [0, 0, 1]


def test_ones_lost_with_a_reset_are_not_looked_for_among_later_requests():
    share = OwnShare()
    assert looks(share, (2, 0, 0)) == [0]
    share.started_over(2)
    assert looks(share, (2, 0, 3)) == [3]


def test_what_was_finished_at_the_beginning_is_not_looked_for():
    assert looks(OwnShare(7), (7, 0, 3)) == [3]


@pytest.mark.parametrize("ours", [1, 8])
def test_a_batch_of_ours_is_taken_out_with_its_size(ours):
    own = OwnCounts(ok=1, batches={ours: 1})
    after = Triton()
    after.book(Own(0, 0, 0, ours))
    after.book(Client(0, 4))
    production = Production(OwnCounts())
    production.advance(None, after.statistics(), own)
    assert production.totals.inferences == 4
    assert +Counter(production.totals.batches) == {4: 1}
    assert production.totals.executions == 1


def test_one_of_ours_merged_into_a_batch_of_production_takes_one_single_at_most():
    merged = Triton()
    merged.success, merged.inferences, merged.batches = 3, 3, Counter({3: 1})
    production = Production(OwnCounts())
    own = OwnCounts(ok=1, batches={1: 1})
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


def test_a_reset_is_counted_and_what_came_after_it_too():
    production = Production(OwnCounts())
    before, after = Triton(), Triton()
    for _ in range(5):
        before.book(Client(0))
    after.book(Client(0))
    production.advance(None, before.statistics(), OwnCounts())
    production.advance(before.statistics(), after.statistics(), OwnCounts())
    assert production.totals.success == 6
    assert production.resets == 1
    assert production.totals.request_ns == 6 * REQUEST_NS


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


def test_the_first_look_at_a_model_is_no_reset():
    production = Production(OwnCounts())
    production.advance(None, Triton(success=3).statistics(), OwnCounts())
    assert production.resets == 0
    assert production.totals.success == 3


def test_own_time_is_taken_out_at_the_mean_of_the_look():
    after = Triton()
    after.book(Own(0, 0, 0))
    for _ in range(3):
        after.book(Client(0))
    production = Production(OwnCounts())
    production.advance(None, after.statistics(), OwnCounts(ok=1, batches={1: 1}))
    assert production.totals.request_ns == 3 * REQUEST_NS
    assert production.totals.busy_ns == 3 * len(PHASES) * PHASE_NS


def test_four_counters_are_cross_checked():
    triton = Triton(success=1, fail=2, inferences=3, batches=Counter({1: 4}))
    assert cross_checked(triton.statistics()) == {
        "success": 1,
        "failure": 2,
        "inferences": 3,
        "executions": 4,
    }


def test_two_of_ours_merged_into_one_batch_are_no_execution_of_production():
    merged = Triton()
    merged.success, merged.inferences, merged.batches = 2, 2, Counter({2: 1})
    production = Production(OwnCounts())
    before, own = Triton().statistics(), OwnCounts(ok=2, batches={1: 2})
    for _ in range(3):
        production.advance(before, merged.statistics(), own)
        before = merged.statistics()
    assert production.totals.executions == production.totals.busy_ns == 0
    # Nor do they hide one that comes later.
    merged.book(Client(0))
    production.advance(before, merged.statistics(), own)
    assert production.totals.executions == production.totals.success == 1


def test_one_we_gave_up_on_is_ours_when_it_shows_late():
    production = Production(OwnCounts())
    own = OwnCounts(unresolved=2, unresolved_batches={1: 2})
    nothing = Triton().statistics()
    for _ in range(4):
        production.advance(nothing, nothing, own)
    after = Triton()
    for _ in range(2):
        after.book(Own(0, 0, 0))
    after.book(Client(0))
    production.advance(nothing, after.statistics(), own)
    totals = production.totals
    assert totals.success == totals.inferences == totals.executions == 1


def test_one_we_gave_up_on_is_not_waited_for_for_ever():
    production = Production(OwnCounts())
    own = OwnCounts(unresolved=1, unresolved_batches={1: 1})
    nothing, after = Triton().statistics(), Triton()
    for _ in range(UNRESOLVED_LOOKS):
        production.advance(nothing, nothing, own)
    after.book(Client(0))
    production.advance(nothing, after.statistics(), own)
    assert production.totals.success == production.totals.executions == 1


def test_what_a_server_that_is_gone_was_asked_is_not_looked_for_in_the_next():
    production = Production(OwnCounts())
    before, after = Triton(), Triton()
    for _ in range(5):
        before.book(Client(0))
    after.book(Client(0))
    production.advance(Triton().statistics(), before.statistics(), OwnCounts())
    own = OwnCounts(unresolved=9, unresolved_batches={1: 9})
    production.advance(before.statistics(), after.statistics(), own)
    assert production.totals.success == production.totals.executions == 6


# The collector, on a server whose counts are set.


class Looked:
    """A statistics collector on a fake server, and production as it says at a look."""

    def __init__(self, fake):
        self.own = OwnTraffic(run_id="test")
        self.clients = GrpcClient(fake.grpc), HttpClient(fake.metrics)
        access = Access(
            grpc=self.clients[0],
            http=None,
            metrics=self.clients[1],
            models=ModelFilter(),
            board=InventoryBoard(),
            own=self.own,
            clock=time.monotonic,
            spans=SpanBuffer(time.time_ns, random.Random(0)),  # noqa: S311 - ids
            exposed=tuple,
            mirror=MirrorHub(),
        )
        self.collector = StatisticsSettings().build(access)

    def __call__(self, model="m", outcome="success"):
        found = {(s.spec.name, s.labels): s for s in self.collector.collect()}
        sample = found.get(("triton_requests_total", (model, "1", outcome)))
        return None if sample is None else sample.value

    def probe(self, fake, model="m"):
        with self.own.request([((model, "1"), 1)]):
            fake.served(model, 1)


@pytest.fixture
def fake():
    with FakeTriton([FakeModel("m")]) as server:
        yield server


@pytest.fixture
def looked(fake):
    scene = Looked(fake)
    yield scene
    for client in scene.clients:
        client.close()


def test_what_the_server_had_counted_before_us_is_not_ours_to_count(looked, fake):
    fake.served("m", 100)
    looked.probe(fake)
    assert looked() == 0
    fake.served("m", 5)
    looked.probe(fake)
    assert looked() == 5


def test_a_model_that_comes_later_counts_from_its_first_request(looked, fake):
    assert looked() == 0
    fake.add(FakeModel("late"))
    fake.served("late", 4)
    looked.probe(fake, "late")
    assert looked("late") == 4


def test_a_reload_keeps_what_was_counted(looked, fake):
    looked()
    fake.served("m", 7)
    assert looked() == 7
    fake.unload("m")
    assert looked() is None
    fake.load("m")
    fake.served("m", 2)
    assert looked() == 9


def test_a_model_gone_for_long_begins_anew_and_so_do_our_own_requests(
    looked, fake, monkeypatch
):
    monkeypatch.setattr("exporter.collectors.statistics._KEEP_MISSING_RUNS", 2)
    looked()
    for _ in range(50):
        looked.probe(fake)
    fake.served("m", 7)
    assert looked() == 7
    fake.unload("m")
    for _ in range(4):
        assert looked() is None
    fake.load("m")
    fake.served("m", 3)
    looked.probe(fake)
    assert looked() == 3


def test_failures_are_counted_apart(looked, fake):
    looked()
    fake.failed("m", 3)
    assert looked(outcome="failure") == 3
    assert looked() == 0


def test_a_metrics_page_of_garbage_costs_no_count(looked, fake):
    fake.on("metrics").reply(Body(b"nv_inference_count{"))
    assert looked() == 0
    fake.served("m", 2)
    assert looked() == 2


def test_statistics_that_cannot_be_had_are_a_failure_of_the_run(looked, fake):
    looked()
    fake.on("statistics").reply(UNAVAILABLE)
    with pytest.raises(errors.UnavailableError):
        looked()
    fake.behave()
    fake.served("m", 2)
    assert looked() == 2


def test_ones_that_end_while_the_look_at_a_new_server_is_taken_are_not_lost():
    production = Production(OwnCounts())
    before, after = Triton(), Triton()
    for _ in range(5):
        before.book(Client(0))
    production.advance(Triton().statistics(), before.statistics(), OwnCounts())
    # Two of ours were booked after this look and before the ledger was read.
    own = OwnCounts(ok=2, batches={1: 2})
    production.advance(before.statistics(), after.statistics(), own, OwnCounts())
    before, after = after, Triton()
    for _ in range(2):
        after.book(Own(0, 0, 0))
    production.advance(before.statistics(), after.statistics(), own, own)
    assert production.totals.success == production.totals.executions == 5
