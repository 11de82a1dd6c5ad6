"""What an experiment showed: phases, budget, promises, verdict."""

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


def told(
    *, until: float = 8.0, away: tuple[float, float] = (99, 99)
) -> tuple[Sample, ...]:
    """A probe that fails from 6 s on, looked at every quarter of a second."""
    interval = Sample(0.0, "triton_probe_interval_seconds", {"probe": "synthetic"}, 1.0)
    success = (
        Sample(at, SUCCESS, {"model": "m"}, float(not 6 <= at < until))
        for at in np.arange(0.0, 20.0, 0.25).tolist()
    )
    return interval, *success, *polled_up(20.0, away=away)


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
        ({"samples": told(until=30.0)}, "spoke of trouble for more than two"),
        ({"samples": polled_up(20.0)}, "did not show it within 2 s"),
        ({"samples": told(away=(7.0, 8.0))}, "did not stay up"),
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


def test_killing_the_sidecar_is_no_broken_promise_if_it_comes_back() -> None:
    away = told(away=(INJECT, 7.0))
    found = findings(outage(kind="kill_sidecar", samples=away, extension={}))
    assert found.sidecar is not None
    assert found.sidecar.stayed_up is True
    assert found.verdict == "held"
    gone = findings(
        outage(kind="kill_sidecar", samples=told(away=(INJECT, 99)), extension={})
    )
    assert "the sidecar: it did not stay up" in gone.reasons


def test_a_sidecar_that_is_away_longer_than_users_suffer_tells_nothing_untrue() -> None:
    up = tuple(Sample(at, "up", {}, float(not 5 <= at < 29)) for at in range(31))
    more = {"detect": {"metric": "up == 0", "within_seconds": 2}}
    said = tuple(s for s in told() if s.at_seconds < 5 and s.metric != "up")
    found = findings(outage(kind="kill_sidecar", extension=more, samples=(*said, *up)))
    assert found.faults[0].signals[0].in_time is True
    assert found.sidecar is not None
    assert found.sidecar.over_in_time is None


def probed(
    *trouble: tuple[float, float], to: float = 20.0, **labels: str
) -> tuple[Sample, ...]:
    """A probe that fails in these spans of time, every second one."""
    looks = np.arange(0.0, to, 0.25).tolist()
    bad = [any(a <= at < b for a, b in trouble) for at in looks]
    counts = {"ok": np.cumsum(~np.array(bad)), "timeout": np.cumsum(bad)}
    success = (
        Sample(at, SUCCESS, {"model": "m", **labels}, float(not failed))
        for at, failed in zip(looks, bad, strict=True)
    )
    return (
        Sample(0.0, "triton_probe_interval_seconds", {"probe": "synthetic"}, 1.0),
        *polled_up(to),
        *success,
        *(
            Sample(at, "triton_probe_total", {"model": "m", "outcome": outcome}, count)
            for outcome, values in counts.items()
            for at, count in zip(looks, values.astype(float).tolist(), strict=True)
        ),
    )


TIMEOUTS = {
    "detect": {
        "metric": 'increase(triton_probe_total{outcome="timeout"}) > 0',
        "within_seconds": 2,
    }
}


def truth(samples: tuple[Sample, ...], **more: Any) -> bool | None:
    found = findings(outage(**{"samples": samples, "extension": TIMEOUTS, **more}))
    assert found.sidecar is not None
    return found.sidecar.over_in_time


def test_a_counter_that_goes_on_to_count_timeouts_tells_what_is_not_so() -> None:
    assert truth(probed((6, 8))) is True
    assert truth(probed((6, 8), (10, 10.5))) is False


def test_what_a_probe_feels_while_the_fault_is_there_is_true_though_users_are_served() -> (
    None
):
    slow = run(poisson(200, 20), slow=((INJECT, 6.0),), slow_seconds=0.2)
    late = {"kind": "network_delay", "revert": 11.0}
    for samples, told in ((probed((6, 12)), True), (probed((6, 14)), False)):
        found = findings(
            evidence(
                slow,
                inject=INJECT,
                extension=TIMEOUTS,
                samples=samples,
                **late,
            )
        )
        assert found.faults[0].recovery is not None
        assert found.faults[0].recovery.state == "recovered"
        assert found.sidecar is not None
        assert found.sidecar.over_in_time is told


def test_a_killed_server_is_well_when_it_is_there_again_whatever_is_undone_later() -> (
    None
):
    ready = Event(REVERT, "server_ready")
    base = outage(samples=probed((6, 12)), extension=TIMEOUTS, revert=11.0)
    again = base.model_copy(update={"events": (*base.events, ready)})
    for one, told in ((base, True), (again, False)):
        found = findings(one)
        assert found.sidecar is not None
        assert found.sidecar.over_in_time is told


def test_where_no_user_was_hurt_it_is_over_when_the_fault_is_gone() -> None:
    load = run(poisson(200, 20))
    for until, told in ((8.0, True), (10.0, False)):
        found = findings(
            evidence(
                load,
                inject=INJECT,
                revert=REVERT,
                extension=TIMEOUTS,
                samples=probed((6, until)),
            )
        )
        assert found.faults[0].recovery is not None
        assert found.faults[0].recovery.state == "unaffected"
        assert found.sidecar is not None
        assert found.sidecar.over_in_time is told


def test_trouble_that_any_probe_tells_of_is_held_against_it() -> None:
    golden = [s for s in probed((6, 12), probe="golden") if s.metric == SUCCESS]
    assert truth((*probed((6, 8)), *golden)) is False


def test_of_a_fault_that_nothing_has_to_show_it_is_true_to_say_nothing() -> None:
    assert truth(probed(), extension={}) is True
    assert truth(probed((15, 16)), extension={}) is False
    assert truth(probed(to=8.0), extension={}) is None


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


def test_a_sender_that_was_late_itself_makes_it_invalid() -> None:
    load = run(poisson(200, 20), refuses=((INJECT, REVERT),))
    load.requests.sent[:] = load.requests.intended + 0.2
    late = result(
        load.requests.intended, load.requests.done + 0.2, load.requests.outcome
    )
    late.dispatch_delay.record_many(np.full(len(load.requests), 0.2))
    found = findings(evidence(late, inject=INJECT, revert=REVERT))
    assert found.verdict == "invalid"
    assert found.exit_code == 3


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
