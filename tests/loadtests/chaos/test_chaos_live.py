"""What users see in the last moment of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_outages import poisson, run

from loadtests.chaos.measuring.live import LiveWindow
from loadtests.engine import Progress
from loadtests.result import Outcome, Requests, RunResult

NOBODY = np.zeros(0, np.int64)


def at_the_time(load: RunResult, now: float) -> Requests:
    """The run's arrays as they were then: what came later had not happened."""
    whole = load.requests
    ended = whole.done <= now
    return replace(
        whole,
        sent=np.where(whole.sent <= now, whole.sent, np.nan),
        done=np.where(ended, whole.done, np.nan),
        outcome=np.where(ended, whole.outcome, Outcome.UNSENT).astype(np.uint8),
    )


def window(load: RunResult, now: float) -> LiveWindow:
    live = LiveWindow(load.about.timeout_seconds)
    live.feed(Progress(now, 0, 0, NOBODY, at_the_time(load, now)))
    return live


def test_a_healthy_server_is_available_and_fast() -> None:
    live = window(run(poisson(200, 10), latency=0.003), 5.0)
    assert live.availability(1.0, 5.0) == 1.0
    assert live.latency(0.95, 1.0, 5.0) == pytest.approx(0.003)


def test_a_hang_shows_in_latency_at_once_and_in_availability_after_a_window() -> None:
    load = run(poisson(200, 20), hangs=((5.0, 9.0),), timeout=3.0)
    soon = window(load, 5.5)
    assert soon.availability(1.0, 5.5) == 1.0
    assert soon.latency(0.95, 1.0, 5.5) == pytest.approx(0.47, abs=0.05)
    later = window(load, 6.5)
    assert later.availability(1.0, 6.5) == 0.0
    assert later.latency(0.95, 1.0, 6.5) == pytest.approx(1.45, abs=0.05)


def test_what_failed_counts_as_the_timeout() -> None:
    load = run(poisson(200, 20), refuses=((5.0, 9.0),), timeout=2.0)
    live = window(load, 6.0)
    assert live.availability(0.5, 6.0) == 0.0
    assert live.latency(0.5, 0.5, 6.0) == 2.0
    half = window(load, 5.5)
    assert half.availability(1.0, 5.5) == pytest.approx(0.5, abs=0.1)


def test_without_requests_nothing_is_known() -> None:
    due = poisson(200, 20)
    live = window(run(due[due > 10.0]), 5.0)
    assert live.availability(1.0, 5.0) is None
    assert live.latency(0.95, 1.0, 5.0) is None
    unfed = LiveWindow(1.0)
    assert unfed.availability(1.0) is None
    assert unfed.elapsed_seconds() is None


def test_this_moment_is_the_progress_and_the_time_since() -> None:
    live = window(run(poisson(200, 20)), 5.0)
    elapsed = live.elapsed_seconds()
    assert elapsed is not None
    assert elapsed >= 5.0
    assert live.availability(5.0) == 1.0


def test_requests_that_the_sender_never_came_to_do_not_count() -> None:
    load = run(poisson(200, 20))
    seen = at_the_time(load, 5.0)
    seen.sent[load.requests.intended > 4.5] = np.nan
    seen.done[load.requests.intended > 4.5] = np.nan
    seen.outcome[load.requests.intended > 4.5] = Outcome.UNSENT
    live = LiveWindow(1.0)
    live.feed(Progress(5.0, 0, 0, NOBODY, seen))
    assert live.availability(0.4, 5.0) is None
    assert live.availability(1.0, 5.0) == 1.0
