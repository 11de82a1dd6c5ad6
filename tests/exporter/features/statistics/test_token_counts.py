"""Production's tokens: sources, our own taken out, restarts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter import catalogue
from exporter.access.collector_base import Access
from exporter.access.own_traffic import NOTHING, Booking, OwnCounts, OwnTokens
from exporter.access.work_board import KnownTokens
from exporter.features.statistics.busy_time import BusyTime
from exporter.features.statistics.production_counts import Production
from exporter.features.statistics.server_page import Page
from exporter.features.statistics.token_counts import (
    GeneratedWork,
    TokenCounts,
    TokenEstimate,
    TokenRead,
)
from exporter.triton.grpc import GrpcClient

KEY = ("llm", "1")


def own(tokens=0, *, unknown=0, answered=0, responses=0, under_way=0):
    """The ledger; `under_way` is the ordinal of a request in flight."""
    counted = OwnTokens(tokens, unknown, answered, responses)
    booked = Booking(requests=tokens + unknown)
    return OwnCounts(
        done=booked,
        in_flight=Booking(requests=1) if under_way else NOTHING,
        under_way=frozenset({under_way} - {0}),
        output_tokens=counted,
        input_tokens=counted,
    )


def read(
    output=None,
    ours=None,
    *,
    before=None,
    requests=0,
    traced=None,
    page=True,
    estimate=None,
    answered=(),
):
    ours = ours or own()
    fields = {} if output is None else {"output": float(output)}
    return TokenRead(
        requests,
        ours if before is None else before,
        ours,
        fields if page else None,
        traced,
        estimate or TokenEstimate(),
        dict(answered),
    )


def totals(counts, spec=catalogue.TOKENS):
    return {s.labels[2:]: s.value for s in counts.samples(KEY) if s.spec is spec}


BACKEND = ("output", "backend")


def test_what_was_there_before_us_and_what_is_ours_is_not_productions():
    counts = TokenCounts(is_new=False)
    counts.advance(read(1000, own(10)))
    assert totals(counts) == {BACKEND: 0}
    counts.advance(read(1075, own(30)))
    assert totals(counts) == {BACKEND: 55}


def books(*pages, models=(KEY,)):
    """Return the samples after reads of these pages; None is one that could not be read."""
    grpc = GrpcClient("127.0.0.1:1")
    work = GeneratedWork(Access.detached(grpc), {})
    shown = []
    for at, fields in enumerate(pages):
        read_page = None if fields is None else Page({}, {}, backend=fields)
        production = {key: Production(OwnCounts()) for key in models}
        ledger = {key: own() for key in models}
        shown = list(work.advance(at, read_page, production, (ledger, ledger)))
    grpc.close()
    return {(s.labels[0], *s.labels[2:]): s.value for s in shown if len(s.labels) == 4}


def test_a_backend_that_begins_to_count_while_we_watch_counts_from_zero():
    tokens = {KEY: {"output": 100.0}}
    assert books({}, None, tokens) == {("llm", *BACKEND): 100}
    assert books(None, tokens) == {("llm", *BACKEND): 0}
    assert books(None, tokens, {KEY: {"output": 130.0}}) == {("llm", *BACKEND): 30}
    assert books({}, {}) == {}


def test_a_first_read_with_ours_under_way_waits_for_one_without():
    counts = TokenCounts(is_new=False)
    counts.advance(read(1005, own(0, under_way=1), before=own()))
    counts.advance(read(1010, own(10)))
    assert totals(counts) == {BACKEND: 0}


def test_a_request_of_ours_under_way_at_the_first_read_costs_production_nothing():
    counts = TokenCounts(is_new=False)
    # The backend has counted its 2 tokens, and its answer has not come.
    counts.advance(read(1002, own(under_way=1)))
    counts.advance(read(1002, own(2)))
    counts.advance(read(1022, own(2)))
    assert totals(counts) == {BACKEND: 20}


def test_requests_of_ours_that_never_pause_do_not_stop_it_and_add_nothing_up():
    counts = TokenCounts(is_new=False)
    counts.advance(read(0))
    # Each look finds one of ours half done: 5 of its 10 tokens are counted.
    for look in range(1, 1001):
        counts.advance(read(20 * look + 5, own(10 * look, under_way=look)))
    assert 9_800 <= totals(counts)[BACKEND] <= 10_000
    counts.advance(read(20_010, own(10_010)))
    assert totals(counts)[BACKEND] == 10_000


def test_a_long_request_is_waited_for_while_shorter_ones_begin_and_end():
    counts = TokenCounts(is_new=False)
    counts.advance(read(0))
    # Half of the long one's 1,000 tokens are counted, and two short ones end meanwhile.
    counts.advance(read(500, own(under_way=1)))
    counts.advance(read(504, own(4, under_way=1)))
    assert totals(counts) == {BACKEND: 0}
    counts.advance(read(1014, own(1004)))
    assert totals(counts) == {BACKEND: 10}


@st.composite
def histories(draw):
    """Reads of a counter: production and ours rise, ours are seen late or early."""
    return draw(
        st.lists(
            st.tuples(
                st.integers(0, 50),
                st.integers(0, 50),
                st.integers(0, 50),
                st.sampled_from(["read", "read", "restart", "gone"]),
            ),
            max_size=40,
        )
    )


@given(histories())
def test_production_is_never_too_high_and_exact_when_ours_pause(history):
    counts = TokenCounts(is_new=False)
    counts.advance(read(0))
    value = production = ours = 0
    for theirs, mine, under_way, event in history:
        if event != "read":
            value = 0  # what came after the last read went with it
            ours += mine
        if event == "gone":
            counts.server_gone(own(ours))
        value += theirs + under_way
        production += theirs
        # Some are counted of which we have no answer yet.
        counts.advance(read(value, own(ours, under_way=1)))
        assert totals(counts)[BACKEND] <= production
        ours += under_way
        counts.advance(read(value, own(ours)))
        assert totals(counts)[BACKEND] <= production
    if all(event == "read" for *_, event in history):
        assert totals(counts)[BACKEND] == production


def test_a_restart_loses_nothing_and_what_it_took_of_ours_is_known():
    counts = TokenCounts(is_new=False)
    counts.advance(read(0))
    counts.advance(read(120, own(20)))
    counts.server_gone(own(27))  # 7 more that the old server answered
    counts.server_gone(own(28))  # later, the new one's
    counts.advance(read(31, own(30)))
    assert totals(counts) == {BACKEND: 100 + 31 - 3}


def test_what_nobody_knows_of_ours_is_counted_as_unknown():
    counts = TokenCounts(is_new=False)
    counts.advance(read(0))
    counts.advance(read(50, own(10, unknown=2, answered=1, responses=8)))
    assert totals(counts) == {BACKEND: 40}
    assert totals(counts, catalogue.TOKENS_OWN_UNKNOWN) == {("output",): 2}


def test_where_each_response_is_a_token_answers_are_known_by_their_responses():
    counts = TokenCounts(is_new=False)
    traced = KnownTokens(0, 0)
    counts.advance(read(0, traced=traced))
    ours = own(10, unknown=2, answered=1, responses=8)
    counts.advance(read(50, ours, traced=traced))
    assert totals(counts) == {BACKEND: 32}
    assert totals(counts, catalogue.TOKENS_OWN_UNKNOWN) == {("output",): 1}


def test_requests_before_the_first_trace_count_once_there_is_one():
    counts = TokenCounts(is_new=True)
    for requests in (30, 60, 99):
        counts.advance(read(requests=requests, traced=KnownTokens(0, 0)))
        assert totals(counts) == {}
    counts.advance(read(requests=100, traced=KnownTokens(1, 10)))
    assert totals(counts) == {("output", "responses"): 1000}
    counts.advance(read(requests=110, traced=KnownTokens(1, 10)))
    assert totals(counts) == {("output", "responses"): 1100}


def test_without_a_backend_the_responses_of_traced_requests_count():
    counts = TokenCounts(is_new=False)
    guess = TokenEstimate(input=3, output=99)
    counts.advance(read(requests=0, traced=KnownTokens(0, 0), estimate=guess))
    counts.advance(read(requests=100, traced=KnownTokens(10, 55), estimate=guess))
    counts.advance(read(requests=200, traced=KnownTokens(20, 155), estimate=guess))
    assert totals(counts) == {
        ("output", "responses"): pytest.approx(100 * 5.5 + 100 * 7.75),
        ("input", "estimate"): 600,
        ("output", "estimate"): 0,  # before the first trace
    }


def test_what_answers_report_counts_before_responses_and_after_the_backend():
    counts = TokenCounts(is_new=True)
    guess = TokenEstimate(input=3, output=5)
    other = {"estimate": guess, "traced": KnownTokens(10, 100)}
    counts.advance(read(requests=100, **other))
    answers = {"output": KnownTokens(4, 80)}
    counts.advance(read(requests=200, answered=answers, **other))
    # Without new answers the mean of the latest counts.
    counts.advance(read(requests=300, answered=answers, **other))
    counts.advance(read(50, requests=400, answered=answers, **other))
    assert totals(counts) == {
        ("output", "responses"): 1000,
        ("output", "answers"): 4000,
        ("input", "estimate"): 1200,
        BACKEND: 50,
    }


@pytest.mark.parametrize(("fields", "reads"), [({}, 1), (None, 13)])
def test_a_backend_that_counts_no_more_leaves_its_tokens_to_the_next_source(
    fields, reads
):
    counts = TokenCounts(is_new=True)
    guess = TokenEstimate(output=5)
    counts.advance(read(200, requests=10, estimate=guess))
    for requests in range(11, 11 + reads):
        counts.advance(read(page=fields is not None, requests=requests, estimate=guess))
    assert totals(counts) == {("output", "estimate"): 5, BACKEND: 200}
    # When it returns, what the other source counted does not count again.
    counts.advance(read(260, requests=30, estimate=guess))
    counts.advance(read(290, requests=40, estimate=guess))
    assert totals(counts) == {("output", "estimate"): 5, BACKEND: 285}


def test_a_mean_without_new_requests_ends_and_counts_again_when_they_return():
    counts = TokenCounts(is_new=True)
    guess = TokenEstimate(output=1)
    old, new = KnownTokens(10, 100), KnownTokens(11, 130)
    for requests, traced in ((10, old), (10_010, old), (10_020, old), (10_030, new)):
        counts.advance(read(requests=requests, traced=traced, estimate=guess))
    found = totals(counts)
    assert found["output", "estimate"] == 10
    assert found["output", "responses"] == pytest.approx(100 + 100_000 + 10 * 130 / 11)


def test_requests_between_rare_traces_count_once_there_is_a_mean_again():
    counts = TokenCounts(is_new=True)
    old, new = KnownTokens(1, 10), KnownTokens(2, 20)
    for requests, traced in ((10, old), (10_010, old), (20_010, old), (30_010, new)):
        counts.advance(read(requests=requests, traced=traced))
    assert totals(counts) == {("output", "responses"): 300_100}


def test_one_source_counts_at_a_time_the_best():
    counts = TokenCounts(is_new=True)
    guess = TokenEstimate(output=5)
    counts.advance(read(requests=10, estimate=guess))
    counts.advance(read(40, requests=20, estimate=guess))
    counts.advance(read(page=False, requests=30, estimate=guess))
    counts.advance(read(90, requests=40, estimate=guess))
    assert totals(counts) == {("output", "estimate"): 50, BACKEND: 90}
    assert counts.total("output") == 140
    assert counts.total("input") is None


def test_with_no_source_there_is_nothing_and_not_zero():
    counts = TokenCounts(is_new=True)
    counts.advance(read(requests=10))
    assert totals(counts) == {}
    assert counts.total("output") is None


def test_time_at_work_is_what_the_backend_reports_and_no_more_than_passed():
    busy = BusyTime()
    ours = 0

    def look(at, seconds, tokens, mine, statistics=0.0):
        nonlocal ours
        ours += mine
        page = {"token_seconds": seconds, "first_seconds": 0.0, "output": tokens}
        busy.advance(at, (statistics, statistics / 2), page, ours)
        return busy.busy, busy.production

    assert look(100.0, 50.0, 1000.0, 100) == (0, 0)  # what was before is not known
    assert look(110.0, 52.0, 1100.0, 25) == (2, 1.5)
    assert look(120.0, 152.0, 1200.0, 0) == (12, 11.5)  # side by side
    assert look(130.0, 3.0, 10.0, 0) == (15, 14.5)  # started over
    assert look(140.0, 3.0, 10.0, 0, statistics=4.0) == (19, 16.5)
    busy.advance(150.0, (5.0, 2.5), None, ours)
    assert (busy.busy, busy.production) == (20, 17)


@pytest.mark.parametrize("older", [40.0, 90_000.0])
def test_the_tokens_that_another_server_counted_before_are_none(older) -> None:
    counts = TokenCounts(is_new=True)
    counts.advance(read(120, own(20)))
    counts.another_server()
    counts.advance(read(older, own(25)))
    assert totals(counts) == {BACKEND: 100}
    counts.advance(read(older + 37, own(27)))
    assert totals(counts) == {BACKEND: 135}


def test_before_the_first_trace_each_response_is_a_token_already():
    """A reload of the traces neither adds our tokens nor stops the count."""
    counts = TokenCounts(is_new=True)
    ours = own(unknown=1000, answered=1000, responses=20_000)
    counts.advance(read(20_100, ours, traced=KnownTokens(5, 100)))
    counts.advance(read(20_100, ours, traced=KnownTokens(0, 0)))
    assert totals(counts) == {BACKEND: 100}
    counts.server_gone(own(unknown=1001, answered=1001, responses=20_030))
    ours = own(unknown=1002, answered=1002, responses=20_040)
    counts.advance(read(15, ours, traced=KnownTokens(0, 0)))
    # Of the last 40 of ours the old server had made 30.
    assert totals(counts) == {BACKEND: 100 + 15 - 10}


def test_what_an_estimate_counted_while_the_page_was_away_is_not_counted_again():
    counts = TokenCounts(is_new=True)
    guess = TokenEstimate(output=100)
    counts.advance(read(page=False, requests=10, estimate=guess))
    counts.advance(read(1000, requests=10, estimate=guess))
    assert counts.total("output") == 1000
    counts.advance(read(1100, requests=11, estimate=guess))
    assert counts.total("output") == 1100


def test_our_own_streams_over_two_reads_are_no_work_of_production():
    busy = BusyTime()
    for second in range(100):
        page = {"token_seconds": 0.5 * second, "output": 100.0 * second}
        # An answer takes two seconds, and its tokens are known at its end.
        busy.advance(float(second), (0.0, 0.0), page, 200 * (second // 2))
    assert busy.busy == pytest.approx(49.5)
    assert busy.production <= 1.0


def test_work_that_the_statistics_showed_while_the_page_was_away_counts_once():
    busy = BusyTime()
    busy.advance(0.0, (0.0, 0.0), {"token_seconds": 0.0, "output": 0.0}, 0)
    for second in range(1, 10):
        busy.advance(float(second), (0.9 * second, 0.9 * second), None, 0)
    busy.advance(10.0, (9.0, 9.0), {"token_seconds": 9.0, "output": 90.0}, 0)
    assert busy.busy == pytest.approx(9.0)
    assert busy.production == pytest.approx(9.0)
