"""Findings of an experiment: phases, faults, verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from simulated_outages import Sample, evidence, poisson, polled_up, result, run

from loadtests.chaos.measuring.findings import findings
from loadtests.chaos.measuring.observations import (
    Check,
    Event,
    Evidence,
    Step,
)
from loadtests.chaos.running.experiment_load import LiveWindow
from loadtests.engine import Progress
from loadtests.result import Outcome, Requests, RunResult

INJECT, REVERT = 5.0, 6.5
SUCCESS = "triton_probe_success"
UNSTEADY: dict[str, Any] = {
    "status": "failed",
    "checks": (Check(5.0, "before", "latency", 0.3, met=False),),
    "problems": ("the steady state did not hold before the method",),
}
NOBODY = np.zeros(0, np.int64)


def told() -> tuple[Sample, ...]:
    """A probe that fails from 6 to 8 s, looked at every quarter of a second."""
    success = (
        Sample(at, SUCCESS, {"model": "m"}, float(not 6 <= at < 8))
        for at in np.arange(0.0, 20.0, 0.25).tolist()
    )
    return *success, *polled_up(20.0)


def outage(**more: Any) -> Evidence:
    load = run(poisson(200, 20), refuses=((INJECT, REVERT),))
    given: dict[str, Any] = {
        "inject": INJECT,
        "revert": REVERT,
        "kind": "kill_server",
        "extension": {"detect": {"metric": f"{SUCCESS} == 0", "within_seconds": 2}},
        "samples": told(),
    }
    return evidence(load, **{**given, **more})


def test_phases_add_up_to_the_run() -> None:
    found = findings(outage())
    assert found.before is not None
    assert found.during is not None
    assert found.after is not None
    assert found.before.availability == 1.0
    assert found.during.availability == pytest.approx(0.0, abs=0.01)
    assert found.after.availability == 1.0
    load = outage().load
    assert load is not None
    parts = (found.before, found.during, found.after)
    assert sum(part.requests for part in parts) == len(load.requests)
    assert found.lost == load.requests.count(Outcome.ERROR)
    assert found.wrong == 0


def test_a_fault_that_is_seen_recovered_from_and_told_of_has_nothing_against_it() -> (
    None
):
    found = findings(outage())
    assert found.verdict == "held"
    assert found.reasons == ()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"checks": (Check(6.0, "during", "availability", 0.2, met=False),)}, "steady"),
        (
            {"samples": (Sample(1.0, SUCCESS, {}, 1.0), *polled_up(20.0))},
            "did not show it within 2 s",
        ),
        ({"leftovers": ("process 7 is stopped",)}, "left behind: process 7"),
    ],
)
def test_every_weakness_is_a_finding_with_its_reason(
    more: dict[str, Any], reason: str
) -> None:
    found = findings(outage(**more))
    assert found.verdict == "finding"
    assert any(reason in said for said in found.reasons), found.reasons


def test_bad_again_after_the_fault_was_gone_is_a_finding() -> None:
    load = run(poisson(200, 30), refuses=((INJECT, REVERT), (15.0, 16.0)))
    gone = findings(evidence(load, inject=INJECT, revert=REVERT))
    assert gone.verdict == "finding"
    assert "freeze_server: bad again once after it had been good" in gone.reasons
    there = findings(evidence(load, inject=INJECT, revert=17.0))
    assert there.verdict == "held"


def test_wrong_answers_are_a_finding_however_few() -> None:
    load = run(poisson(200, 20), lies=((INJECT, INJECT + 0.02),))
    found = findings(evidence(load, inject=INJECT, revert=REVERT))
    assert found.wrong
    assert found.verdict == "finding"
    meant = findings(evidence(load, inject=INJECT, revert=REVERT, kind="lying_model"))
    assert meant.verdict == "held"
    assert any("that was the fault" in note for note in meant.notes)


def test_a_model_that_lies_unseen_is_no_result() -> None:
    load = run(poisson(200, 20))
    found = findings(evidence(load, inject=INJECT, revert=REVERT, kind="lying_model"))
    assert found.verdict == "invalid"
    assert any("no wrong answer was seen" in said for said in found.reasons)
    # Nobody compares the answers of streams: their lie is for the sidecar to find.
    load.requests.responses[:] = 5
    streamed = evidence(load, inject=INJECT, revert=REVERT, kind="lying_model")
    assert findings(streamed).verdict == "held"


def test_detection_that_nobody_watched_is_no_result() -> None:
    wanted = [{"alert": "TritonSilentFailure", "within_seconds": 30}]
    found = findings(outage(extension={"detect": wanted}))
    assert found.verdict == "invalid"
    assert any("TritonSilentFailure" in said for said in found.reasons)


def test_a_sidecar_that_was_never_read_is_no_result() -> None:
    unread = tuple(one._replace(value=0.0) for one in polled_up(20.0))
    found = findings(outage(samples=unread))
    assert found.verdict == "invalid"
    assert any("could not be read" in said for said in found.reasons), found.reasons


TRUE_BEFORE = Sample(0.0, SUCCESS, {"model": "m"}, 0.0)
ENDED = {"kind": "cpu_hog", "lapsed": ["0 of 1 processes run"]}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"samples": (TRUE_BEFORE, *polled_up(20.0))}, "already true before"),
        ({"samples": polled_up(20.0)}, f"no series {SUCCESS} was ever there"),
        ({"checks": (Check(9.0, "during", "p", 1.0, met=True),)}, "was not checked"),
        (
            {"events": (*outage().events, Event(REVERT, "revert", ENDED))},
            "cpu_hog had ended before its undo: 0 of 1 processes run",
        ),
    ],
)
def test_what_was_not_seen_decides_nothing(more: dict[str, Any], reason: str) -> None:
    found = findings(outage(**more))
    assert found.verdict == "invalid"
    assert any(reason in said for said in found.reasons), found.reasons


@pytest.mark.parametrize("watched", [True, False])
def test_without_a_hypothesis_during_the_fault_none_has_to_be_checked(
    *, watched: bool
) -> None:
    seen = outage(checks=())
    experiment = dict(seen.experiment)
    if watched:
        ours = {**experiment["extensions"][0], "during": "watch"}
        experiment["extensions"] = [ours]
    else:
        del experiment["steady-state-hypothesis"]
    found = findings(seen.model_copy(update={"experiment": experiment}))
    assert found.verdict == "held"
    assert [note for note in found.notes if "was not judged" in note]


def test_a_run_that_ended_before_recovery_was_certain_is_undecided() -> None:
    given: dict[str, Any] = {"extension": {}, "inject": INJECT, "revert": REVERT}
    soon = run(poisson(200, REVERT + 2), refuses=((INJECT, REVERT),))
    found = findings(evidence(soon, **given))
    assert found.verdict == "invalid"
    assert any("recovery unknown" in said for said in found.reasons)
    # What is known to be wrong stays a finding.
    left = findings(evidence(soon, leftovers=("process 7 is stopped",), **given))
    assert left.verdict == "finding"
    assert any("recovery unknown" in said for said in left.reasons)


def test_a_step_that_failed_fails_the_experiment() -> None:
    step = Step(
        INJECT, 0.1, "method", {"name": "kill it"}, succeeded=False, problem="no"
    )
    found = findings(outage(steps=(step,)))
    assert found.verdict == "failed"
    assert "kill it failed: no" in found.reasons
    assert findings(outage(status="aborted")).verdict == "failed"


def test_nothing_sent_shows_nothing() -> None:
    found = findings(evidence(None, inject=INJECT))
    assert found.verdict == "failed"
    assert found.lost is None
    assert found.before is None
    assert found.faults[0].recovery is None


def test_an_unsteady_state_fails_where_the_sender_was_in_time() -> None:
    assert findings(evidence(run(poisson(200, 20)), **UNSTEADY)).verdict == "failed"


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({"inject": INJECT, "revert": REVERT}, "invalid"),
        (UNSTEADY, "invalid"),
        (
            UNSTEADY | {"steps": (Step(1.0, 0.1, "method", {}, succeeded=False),)},
            "failed",
        ),
        ({"status": "failed", "problems": ("no such fault",)}, "failed"),
    ],
)
def test_a_sender_that_was_late_itself_makes_it_invalid(
    more: dict[str, Any], verdict: str
) -> None:
    load = run(poisson(200, 20), refuses=((INJECT, REVERT),))
    load.requests.sent[:] = load.requests.intended + 0.2
    late = result(
        load.requests.intended, load.requests.done + 0.2, load.requests.outcome
    )
    late.dispatch_delay.record_many(np.full(len(load.requests), 0.2))
    found = findings(evidence(late, **more))
    assert found.verdict == verdict
    assert any("own p99 delay" in said for said in found.reasons)


def test_without_a_fault_all_is_before() -> None:
    found = findings(evidence(run(poisson(100, 10))))
    assert found.faults == ()
    assert found.during is None
    assert found.before is not None
    assert found.verdict == "held"


def test_faults_one_after_the_other_are_judged_each_by_itself() -> None:
    load = run(poisson(200, 40), refuses=((5.0, 6.0), (20.0, 99.0)))
    events = (
        Event(5.0, "inject", {"kind": "kill_stub"}),
        Event(5.5, "inject", {"kind": "cpu_hog"}),
        Event(20.0, "inject", {"kind": "kill_server"}),
        Event(25.0, "reverted", {"kind": "kill_server"}),
    )
    first, second = findings(evidence(load, events=events)).faults
    assert first.span.kinds == ("kill_stub", "cpu_hog")
    assert second.span.kinds == ("kill_server",)
    assert first.recovery is not None
    assert second.recovery is not None
    assert first.recovery.state == "recovered"
    assert second.recovery.state == "not_recovered"


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
