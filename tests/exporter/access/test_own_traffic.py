"""The ledger of own requests: what counts where, whatever way a request ends."""

from __future__ import annotations

import contextlib
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meanwhile import repeated

from exporter import errors
from exporter.access.own_traffic import (
    BOOKING_SECONDS,
    NOTHING,
    REQUEST_ID_PREFIX,
    Booking,
    OwnCounts,
    OwnTokens,
    OwnTraffic,
    Touched,
)
from exporter.triton.protocol_types import (
    InferReply,
    OutputTensor,
    Tokens,
)
from exporter.triton.streamed_reply import tokens_of

KEY, STEP = ("m", "1"), ("step", "2")


ONE = Booking(1, 1, {1: 1})


def ledger_after(error, touched=((KEY, 1),)):
    ledger = OwnTraffic(run_id="run")
    if error is None:
        with ledger.request(touched):
            pass
    else:
        with pytest.raises(type(error)), ledger.request(touched):
            raise error
    return ledger


def int32(name, *values):
    data = np.array(values, np.int32).tobytes()
    return OutputTensor(name, "INT32", (len(values), 1), data)


def tokens_after(reply, error=None):
    ledger = OwnTraffic(run_id="run")
    with contextlib.suppress(errors.TritonError), ledger.request(((KEY, 1),)) as asked:
        asked.reply = reply
        if error is not None:
            raise error
    counts = ledger.counts(KEY)
    return counts.input_tokens, counts.output_tokens


def test_tokens_of_ours_are_those_that_the_answers_report():
    both = (int32("num_input_tokens", 3, 4), int32("num_output_tokens", 5, 6))
    assert tokens_after(InferReply(both, 1.0)) == (OwnTokens(7), OwnTokens(11))
    of_stream = InferReply(both, 1.0, 2, tokens_of(both, tokens_of(both)))
    assert tokens_after(of_stream) == (OwnTokens(7), OwnTokens(22))


@pytest.mark.parametrize(
    "output",
    [
        int32("num_output_tokens"),
        int32("num_output_tokens", -1),
        int32("num_output_tokens", *range(4000)),
        OutputTensor("num_output_tokens", "BYTES", (1,), b"1234"),
        OutputTensor("num_output_tokens", "UINT32", (2,), b"1234"),
        OutputTensor("tokens", "INT32", (1,), b"1234"),
    ],
)
def test_tokens_that_an_answer_does_not_report_are_unknown_and_not_zero(output):
    unknown = OwnTokens(0, unknown=1, answered=1, responses=3)
    assert tokens_after(InferReply((output,), 1.0, 3)) == (unknown, unknown)


def test_a_stream_of_which_one_response_does_not_report_its_tokens_has_unknown_ones():
    told = (int32("num_input_tokens", 3), int32("num_output_tokens", 5))
    for first, then in ((told, ()), ((), told)):
        assert tokens_of(then, tokens_of(first)) == Tokens(3, None)


def test_tokens_of_a_request_that_failed_are_unknown_unless_it_never_came():
    lost = OwnTokens(0, unknown=1)
    assert tokens_after(None, errors.DeadlineError("late")) == (lost, lost)
    assert tokens_after(None, errors.UnreachableError("x")) == (OwnTokens(),) * 2


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, OwnCounts(ok=1, done=ONE)),
        (
            errors.ModelError("x"),
            OwnCounts(failed=1, executed_failures=1, possible=ONE),
        ),
        (errors.InvalidRequestError("wrong"), OwnCounts(failed=1, possible=ONE)),
        (errors.UnavailableError("busy"), OwnCounts(failed=1, possible=ONE)),
        (errors.UnreachableError("away"), OwnCounts()),
        (errors.NotSentError("no thread"), OwnCounts()),
        (errors.DeadlineError("late"), OwnCounts(unresolved=ONE)),
        (errors.ProtocolError("garbage"), OwnCounts(unresolved=ONE)),
        (RuntimeError("a bug of ours"), OwnCounts(unresolved=ONE)),
        (KeyboardInterrupt(), OwnCounts(unresolved=ONE)),
    ],
)
def test_what_a_request_ends_with_decides_where_it_counts(error, expected):
    counts = ledger_after(error).counts(KEY)
    assert counts == expected
    assert counts.ended == (NOTHING if expected == OwnCounts() else ONE)


def test_a_request_is_in_flight_until_it_ends():
    ledger = OwnTraffic(run_id="run")
    with ledger.request([(KEY, 4)]):
        during = ledger.counts(KEY)
        assert during == OwnCounts(in_flight=Booking(1, 4, {4: 1}))
    assert ledger.counts(KEY) == OwnCounts(ok=1, done=Booking(1, 4, {4: 1}))


def test_a_step_used_twice_counts_twice():
    ledger = ledger_after(None, [(KEY, 1), (STEP, 1), (STEP, 1)])
    assert ledger.snapshot() == {
        KEY: OwnCounts(ok=1, done=ONE),
        STEP: OwnCounts(ok=2, done=Booking(2, 2, {1: 2})),
    }


def test_a_failure_may_be_booked_on_the_model_asked_and_on_each_of_its_steps():
    asked = Touched(KEY, 1, fails_twice=True)
    ledger = ledger_after(errors.ModelError("x"), [asked, (STEP, 1)])
    assert ledger.snapshot() == {
        KEY: OwnCounts(
            failed=1, executed_failures=1, possible=Booking(1, 1, {1: 1}, 1)
        ),
        STEP: OwnCounts(possible=ONE),
    }


def test_what_a_cache_may_have_answered_is_surely_asked_and_perhaps_executed():
    cached = Touched(KEY, 4, is_executed=False)
    behind = Touched(STEP, 4, is_executed=False, is_success_certain=False)
    ledger = ledger_after(None, [cached, behind])
    assert ledger.snapshot() == {
        KEY: OwnCounts(ok=1, done=Booking(1), possible=Booking(0, 4, {4: 1})),
        STEP: OwnCounts(ok=1, possible=Booking(1, 4, {4: 1})),
    }


def test_what_a_cache_answered_is_executed_nowhere():
    ledger = OwnTraffic(run_id="run")
    cached = Touched(KEY, 4, is_executed=False)
    behind = Touched(STEP, 4, is_executed=False, is_success_certain=False)
    with ledger.request([cached, behind]) as asked:
        asked.from_cache = True
    assert ledger.counts(KEY) == OwnCounts(ok=1, done=Booking(1))
    assert ledger.counts(STEP) == OwnCounts(ok=1)


@pytest.mark.parametrize("error", [None, errors.ModelError("x")])
def test_what_the_model_asked_calls_is_possible_whether_it_succeeds_or_not(error):
    called = Touched(STEP, 1, is_executed=False, is_success_certain=False)
    counts = ledger_after(error, [(KEY, 1), called, called]).counts(STEP)
    assert counts == OwnCounts(ok=2 * (error is None), possible=Booking(2, 2, {1: 2}))


def test_a_request_lost_is_lost_on_every_step():
    ledger = ledger_after(errors.DeadlineError("x"), [(KEY, 1), (STEP, 1)])
    assert {c.unresolved.requests for c in ledger.snapshot().values()} == {1}


def test_no_look_ever_sees_a_request_twice_or_not_at_all():
    ledger, begun = OwnTraffic(run_id="run"), 0

    def look():
        least = begun
        counts = ledger.counts(KEY)
        in_flight = counts.in_flight.requests
        assert 0 <= in_flight <= 1
        assert in_flight + counts.ok >= least

    with repeated(look):
        for number in range(3000):
            with ledger.request([(KEY, 1)]):
                begun = number + 1
    assert ledger.counts(KEY) == OwnCounts(ok=3000, done=Booking(3000, 3000, {1: 3000}))


def test_a_pause_waits_for_requests_under_way_and_holds_back_new_ones():
    ledger = OwnTraffic(run_id="run")
    order = []
    begun, end = threading.Event(), threading.Event()

    def first():
        with ledger.request([(KEY, 1)]):
            begun.set()
            end.wait(10)
        order.append("first ended")

    def second():
        with ledger.request([(KEY, 1)]):
            order.append("second began")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    begun.wait(10)
    threading.Timer(0.05, end.set).start()
    with ledger.paused(10):
        threads[0].join()
        threads[1].start()
        threads[1].join(0.1)
        order.append("pause ended")
    threads[1].join()
    assert order == ["first ended", "pause ended", "second began"]


def test_a_pause_gives_triton_time_to_book_though_one_request_does_not_end():
    ledger = OwnTraffic(run_id="run")
    with ledger.request([(STEP, 1)]):
        with ledger.request([(KEY, 1)]):
            pass
        ended = time.monotonic()
        with ledger.paused(0.0) as settled:
            assert time.monotonic() >= ended + BOOKING_SECONDS
        assert settled[KEY] == OwnCounts(ok=1, done=ONE)
        assert settled[STEP] == OwnCounts(in_flight=ONE)


def test_neither_a_pause_nor_a_request_waits_for_ever():
    ledger = OwnTraffic(run_id="run")
    with ledger.request([(KEY, 1)]), ledger.paused(0.01):
        assert ledger.counts(KEY).in_flight == ONE
        with ledger.request([(STEP, 1)]):
            assert ledger.counts(STEP).in_flight == ONE


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["ok", "fail", "late"]))))
def test_counts_add_up(requests):
    ledger = OwnTraffic(run_id="run")
    endings = {"ok": None, "fail": errors.ModelError("x"), "late": TimeoutError()}
    for size, ending in requests:
        context = ledger.request([(KEY, size)])
        context.__enter__()
        error = endings[ending]
        assert not context.__exit__(type(error) if error else None, error, None)
    counts = ledger.counts(KEY)
    assert counts.ok == counts.done.requests == sum(counts.done.batches.values())
    assert counts.failed == counts.possible.requests
    assert counts.ok + counts.failed + counts.unresolved.requests == len(requests)
    assert counts.done.inferences == sum(size for size, end in requests if end == "ok")
    assert counts.in_flight == Booking()


def test_a_model_that_is_gone_can_be_forgotten():
    ledger = ledger_after(None)
    assert ledger.forget(KEY)
    assert ledger.snapshot() == {}
    assert ledger.forget(("never", "seen"))


def test_a_model_with_a_request_in_flight_is_not_forgotten():
    ledger = OwnTraffic(run_id="run")
    with ledger.request([(KEY, 1)]):
        assert not ledger.forget(KEY)
    assert ledger.counts(KEY).ok == 1


def test_request_ids_are_recognisable_and_never_the_same():
    one, two = OwnTraffic(run_id="a1"), OwnTraffic(run_id="b2")
    ids = [ledger.new_request_id("synthetic") for ledger in (one, one, two, two)]
    assert len(set(ids)) == 4
    assert all(i.startswith(f"{REQUEST_ID_PREFIX}synthetic-") for i in ids)
    # An exemplar's label set may hold 128 characters in all.
    assert max(map(len, ids)) < 100


@pytest.mark.parametrize(
    ("from_cache", "ours"), [(True, OwnTokens()), (False, OwnTokens(unknown=1))]
)
def test_tokens_of_an_answer_that_a_cache_may_have_given_are_not_subtracted(
    from_cache, ours
):
    ledger = OwnTraffic(run_id="run")
    with ledger.request([Touched(KEY, 1, is_executed=False)]) as asked:
        asked.reply = InferReply((int32("num_output_tokens", 100),), 1.0)
        asked.from_cache = from_cache
    assert ledger.counts(KEY).output_tokens == ours


def test_tokens_of_models_that_the_model_asked_calls_by_itself_are_unknown():
    ledger = OwnTraffic(run_id="run")
    called = Touched(STEP, 1, is_executed=False, is_success_certain=False)
    with ledger.request([(KEY, 1), called, called]) as asked:
        asked.reply = InferReply((int32("num_output_tokens", 100),), 1.0)
    assert ledger.counts(KEY).output_tokens == OwnTokens(100)
    assert ledger.counts(STEP).output_tokens == OwnTokens(unknown=2)
    assert ledger.counts(STEP).input_tokens == OwnTokens(unknown=2)
