"""The record of a run whose number of requests nobody knows before."""

from __future__ import annotations

import numpy as np

from loadtests.engine import recorder
from loadtests.engine.recorder import Recorder
from loadtests.result import Outcome


def test_it_grows_up_to_the_most_requests_of_a_run_and_keeps_what_it_has(
    monkeypatch,
) -> None:
    monkeypatch.setattr(recorder, "_FIRST_CAPACITY", 4)
    monkeypatch.setattr(recorder, "MAX_REQUESTS", 10)
    one = Recorder.growing(100.0)
    one.begin(3)
    one.finish(3, Outcome.OK, 102.5)
    for count, held in ((4, 4), (5, 8), (9, 10), (10, 10)):
        assert one.make_room(count)
        assert len(one.requests) == held
    assert not one.make_room(11)
    assert one.requests.done[3] == 2.5
    one.begin(9)
    one.finish(9, Outcome.OK, 103.0)
    assert one.requests.done[9] == 3.0
    assert np.flatnonzero(one.requests.outcome == Outcome.OK).tolist() == [3, 9]


def test_each_request_is_written_down_as_it_went(monkeypatch) -> None:
    monkeypatch.setattr(recorder, "MAX_MESSAGES", 2)
    one, ended, lost = Recorder.growing(100.0), [], []
    one.ended, one.lost = ended.append, lost.append
    one.begin(0)
    one.reject(1)
    assert (one.started, one.in_flight, one.finished) == (2, 1, [1])
    for at, since in ((100.5, None), (100.7, 100.5), (101.2, 100.7), (101.1, 101.2)):
        one.respond(0, at, since)
    one.count_tokens(0, 1 << 40)
    one.finish(0, Outcome.OK, 102.0)
    for index, message in enumerate("aabcdx" * 2, 2):
        one.begin(index)
        one.finish(index, Outcome.ERROR, 103.0, message * 500)
    one.begin(14)
    one.lose(14, 104.0, "gone")
    assert (one.started, one.in_flight) == (15, 0)
    assert one.finished == [1, 0, *range(2, 15)]
    assert (ended, lost) == ([0, *range(2, 14)], [14])
    written = one.requests
    assert written.outcome[:3].tolist() == [Outcome.OK, Outcome.REJECTED, Outcome.ERROR]
    assert (written.first[0], written.done[0]) == (0.5, 2.0)
    assert (written.responses[0], written.tokens[0]) == (4, (1 << 32) - 1)
    assert written.longest_gap[0] == np.float32(0.5)
    # A clock that steps back makes a gap of nothing.
    assert (one.between.count, one.between.min) == (3, 0.0)
    assert one.errors == {"a" * 200: 4, "b" * 200: 2, "other errors": 7}
    assert one.unanswered.count == 1


def test_a_message_of_a_server_can_be_written_whatever_it_holds() -> None:
    one = Recorder.growing(100.0)
    for index, message in enumerate(("no \ud83d", "no \udcc3")):
        one.begin(index)
        one.finish(index, Outcome.ERROR, 101.0, message)
    assert one.errors == {"no ?": 2}
