"""Findings of an experiment: phases, faults, verdict."""

from __future__ import annotations

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
from loadtests.result import Outcome

INJECT, REVERT = 5.0, 6.5
SUCCESS = "triton_probe_success"


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
    assert found.exit_code == 0


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"checks": (Check(6.0, "during", "availability", 0.2, met=False),)}, "steady"),
        ({"samples": polled_up(20.0)}, "did not show it within 2 s"),
        ({"leftovers": ("process 7 is stopped",)}, "left behind: process 7"),
    ],
)
def test_every_weakness_is_a_finding_with_its_reason(
    more: dict[str, Any], reason: str
) -> None:
    found = findings(outage(**more))
    assert found.verdict == "finding"
    assert found.exit_code == 1
    assert any(reason in said for said in found.reasons), found.reasons


def test_bad_again_after_the_fault_was_gone_is_a_finding() -> None:
    load = run(poisson(200, 30), refuses=((INJECT, REVERT), (15.0, 16.0)))
    gone = findings(evidence(load, inject=INJECT, revert=REVERT))
    assert gone.verdict == "finding"
    assert "freeze_server: bad again 1 times after it had been good" in gone.reasons
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


UNSTEADY: dict[str, Any] = {
    "status": "failed",
    "checks": (Check(5.0, "before", "latency", 0.3, met=False),),
    "problems": ("the steady state did not hold before the method",),
}


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
    assert found.exit_code == {"invalid": 3, "failed": 1}[verdict]


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
