"""Calls that end after their callers: their threads, their deadlines and the client's end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from waiting import wait_until

from exporter import errors
from exporter.access.probe_base import outcome_of
from exporter.triton import uncancelled_calls
from exporter.triton.uncancelled_calls import LONGEST_SECONDS, UncancelledCalls


@pytest.fixture
def held():
    """A call that ends when its event is set, and what it was given."""
    released, given = threading.Event(), []

    def call(deadline_seconds, too_late):
        given.append(deadline_seconds)
        assert released.wait(60)
        given.append(too_late.is_set())

    yield call, released, given
    released.set()


def test_a_call_that_no_thread_took_is_not_made_later(held, monkeypatch):
    monkeypatch.setattr(uncancelled_calls, "_MOST_THREADS", 1)
    call, released, given = held
    calls = UncancelledCalls()
    with pytest.raises(errors.DeadlineError):
        calls.answer(call, model="m", timeout_seconds=0.1)
    with pytest.raises(errors.NotSentError, match="no thread") as caught:
        calls.answer(call, model="m", timeout_seconds=0.1)
    # Nothing of the model's, and nothing of the settings'.
    assert outcome_of(caught.value) == "late"
    released.set()
    assert calls.answer(lambda *_: "next", model="m", timeout_seconds=60) == "next"
    assert given == [0.1 + LONGEST_SECONDS, True]


def test_the_client_ends_with_its_last_call(held):
    call, released, _ = held
    calls, closed = UncancelledCalls(), threading.Event()
    with pytest.raises(errors.DeadlineError):
        calls.answer(call, model="m", timeout_seconds=0.1)
    calls.close(closed.set)
    assert not closed.is_set()
    with pytest.raises(errors.UnreachableError):
        calls.answer(call, model="m", timeout_seconds=0.1)
    released.set()
    assert closed.wait(60)


def test_beyond_the_limit_a_call_has_its_callers_timeout(held, monkeypatch):
    monkeypatch.setattr(uncancelled_calls, "_MOST_CALLS", 2)
    call, released, given = held
    calls = UncancelledCalls()
    with ThreadPoolExecutor(3) as pool:
        asked = [
            pool.submit(calls.answer, call, model="m", timeout_seconds=60.0)
            for _ in range(3)
        ]
        wait_until(lambda: len(given) == 3)
        assert sorted(given) == [60.0] + 2 * [60.0 + LONGEST_SECONDS]
        released.set()
        assert [a.result() for a in asked] == [None] * 3
