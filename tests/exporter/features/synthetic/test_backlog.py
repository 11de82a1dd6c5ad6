"""When a model is busy with other clients, and which statistics matter."""

from __future__ import annotations

import pytest

from exporter.access.inventory import Inventory
from exporter.access.probe_base import Verdict
from exporter.access.work_board import ModelWork, WorkSnapshot
from exporter.features.synthetic.synthetic_verdicts import Backlog
from exporter.own_requests.execution_evidence import Reading, Watched
from exporter.triton.protocol_types import Duration, ModelSpec, ModelStatistics

M = ("m", "1")
TIMEOUT = Verdict("timeout", request_id="1")
OK = Verdict("ok", 0.1, request_id="2")
WATCHED = Watched(frozenset(), frozenset(), {M: 0.0})


def reading(executions, hits=0):
    found = ModelStatistics(*M, execution_count=executions, cache_hit=Duration(hits, 0))
    return Reading({M: found})


def seen(*counts, window=10.0):
    """A backlog that saw these executions, a second apart from 0 on."""
    backlog = Backlog(window)
    for now, count in enumerate(counts):
        backlog.add(reading(count), WATCHED, float(now))
    return backlog


def test_executions_that_went_up_within_the_window_show_that_it_moves():
    backlog = seen(5, 5, 6)
    assert backlog.moves(WATCHED, 2)
    assert backlog.moves(WATCHED, 12)
    assert not backlog.moves(WATCHED, 12.01)


def test_an_idle_sequence_keeps_its_slot_for_as_long_as_the_model_says():
    pausing = Watched(frozenset(), frozenset(), {M: 60.0})
    backlog = seen(5, 6)
    assert backlog.moves(pausing, 71)
    assert not backlog.moves(pausing, 71.01)


def test_what_ran_before_anybody_looked_shows_nothing():
    assert not seen(500).moves(WATCHED, 0)
    assert not seen(500, 500, 500).moves(WATCHED, 2)


def test_a_counter_that_starts_over_is_no_progress():
    assert not seen(500, 3).moves(WATCHED, 1)
    assert seen(500, 3, 4).moves(WATCHED, 2)


def test_every_sequence_model_on_the_way_has_to_move():
    other = ("n", "1")
    both = Watched(frozenset(), frozenset(), {M: 0.0, other: 0.0})
    assert not seen(1, 2).moves(both, 1)


def test_requests_that_wait_in_vain_are_sent_ever_less_often():
    backlog = Backlog(10)
    skipped = []
    for _ in range(9):
        backlog.note(TIMEOUT, 0.0)
        # None of these is an answer of the model.
        backlog.note(Verdict("timeout", is_repeated=True), 0.0)
        for outcome in ("late", "unavailable"):
            backlog.note(Verdict(outcome, request_id="3"), 0.0)
        count = 0
        while backlog.skips():
            count += 1
        skipped.append(count)
    assert skipped == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    backlog.note(OK, 0.0)
    assert not backlog.skips()


def served(at, inferences, *, is_doubtful=False):
    work = ModelWork(0.0, 0.0, inferences, is_doubtful=is_doubtful)
    return WorkSnapshot(at, {M: work})


@pytest.mark.parametrize(
    ("readings", "until"),
    [
        ([(1, 5), (2, 6), (4, 7)], 14),
        # Of a model that takes long for each request.
        ([(1, 5), (2, 6), (22, 7)], 62),
        # Of one that has a client in an hour, for ten minutes.
        ([(1, 5), (2, 6), (3602, 7)], 4202),
        # One of these may have ended before the timeout.
        ([(1, 5), (2, 6), (4, 6)], None),
        # What was read before it, or twice, shows nothing.
        ([(0, 5), (1, 6), (2, 7), (2, 8)], None),
        # A restarted server counts from 0.
        ([(1, 5), (2, 6), (3, 1), (4, 2)], 14),
    ],
)
def test_a_model_that_twice_served_others_since_a_timeout_is_no_dead_one(
    readings, until
):
    backlog = Backlog(10)
    backlog.note(TIMEOUT, 0.0)
    for reading in readings:
        backlog.add_work(M, served(*reading))
    if until is not None:
        assert backlog.serves_others(until)
        assert not backlog.serves_others(until + 0.01)
        backlog.note(OK, 0.0)
    assert not backlog.serves_others(readings[-1][0])


@pytest.mark.parametrize(
    ("busy_ratio", "is_reported", "serves"),
    [(0.01, True, False), (0.6, True, True), (0.01, False, True)],
)
def test_requests_that_an_engine_took_show_nothing_if_it_reports_no_work(
    busy_ratio, is_reported, serves
):
    """It may release them at once, and hang."""
    backlog = Backlog(10)
    backlog.note(TIMEOUT, 0.0)
    for at in range(1, 5):
        busy = ModelWork(busy_ratio * at, 0.0, 50 * at, is_busy_reported=is_reported)
        backlog.add_work(M, WorkSnapshot(at, {M: busy}))
    assert backlog.serves_others(4) == serves


def worked(at, busy_seconds):
    return WorkSnapshot(at, {M: ModelWork(busy_seconds, 0.0, 0)})


def attempts_until_sent(backlog):
    """Return how many attempts send nothing before one does."""
    return next(count for count in range(1000) if not backlog.skips())


def test_the_first_execution_after_a_timeout_is_followed_by_a_request_at_once():
    backlog = Backlog(10)
    for now in range(7):
        attempts_until_sent(backlog)
        backlog.note(TIMEOUT, float(now))
        backlog.add_work(M, worked(now + 0.5, 5.0))
    # Executed: the request that was given up.
    backlog.add_work(M, worked(8.0, 25.0))
    assert attempts_until_sent(backlog) == 0
    # A slow model executes each of ours in the end: one early request for each in turn.
    backlog.note(TIMEOUT, 9.0)
    backlog.add_work(M, worked(10.0, 45.0))
    assert attempts_until_sent(backlog) == 64
    backlog.note(TIMEOUT, 11.0)
    backlog.add_work(M, worked(12.0, 65.0))
    assert attempts_until_sent(backlog) == 0


def test_successes_that_may_be_failures_show_nothing():
    backlog = Backlog(10)
    backlog.note(TIMEOUT, 0.0)
    for at in (1, 2, 3):
        backlog.add_work(M, served(at, at, is_doubtful=True))
    assert not backlog.serves_others(3)


def spec(name, *steps, **changes):
    return ModelSpec(name, "1", (), (), steps=tuple((s, "") for s in steps), **changes)


def inventory(*specs):
    return Inventory(models={(s.name, s.version): s for s in specs})


def test_caches_and_sequences_of_nested_steps_are_watched():
    whole = spec("whole", "part", "plain", response_cache=False)
    part = spec("part", "seq", "leaf", response_cache=True)
    seq = spec("seq", sequence=True, sequence_idle_seconds=5.0)
    leaf, plain = spec("leaf"), spec("plain")
    watched = Watched.of(whole, inventory(whole, part, seq, leaf, plain))
    assert watched.cached == {("part", "1")}
    assert watched.behind_cache == {("seq", "1"), ("leaf", "1")}
    assert watched.sequences == {("seq", "1"): 5.0}
    assert not Watched.of(plain, inventory(plain)).keys


def test_an_ensemble_that_contains_itself_ends():
    one, two = spec("one", "two"), spec("two", "one", response_cache=True)
    watched = Watched.of(one, inventory(one, two))
    assert watched.cached == {("two", "1")}
    assert watched.behind_cache == frozenset()


def test_hits_are_those_of_all_caches():
    both = Watched(frozenset({M, ("n", "1")}), frozenset(), {})
    assert reading(0, hits=7).hits(both) == 7
