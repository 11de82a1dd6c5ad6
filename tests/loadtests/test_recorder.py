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
