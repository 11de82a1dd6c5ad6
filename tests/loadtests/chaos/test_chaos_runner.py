"""Experiments on the real Triton: what is measured, what ends them, what is refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from abandoned_journals import abandoned
from process_experiments import (
    FREEZE,
    MODEL,
    NAME,
    Experiments,
    at,
    availability,
    injecting,
    of_process,
    provider,
)
from process_experiments import document as short_experiment
from waiting import patience

from exporter.errors import ConfigError
from loadtests.chaos import experiment, toolkit
from loadtests.chaos.measuring.findings import findings
from loadtests.chaos.running.experiment_load import with_right_answers
from loadtests.chaos.running.repetition import RunOptions, run
from loadtests.chaos.targets.chaos_target import NotAllowedError
from loadtests.chaos.undoing.undo import require_undone
from loadtests.chaos.undoing.undo_journal import Journal, JournalError
from loadtests.engine import run_closed
from loadtests.errors import FaultRefusedError
from loadtests.execute import prepared
from loadtests.plan import Mix
from loadtests.result import Outcome

if TYPE_CHECKING:
    from exporter.triton.embedded import EmbeddedTriton

pytestmark = pytest.mark.triton


def test_a_hang_of_a_second_is_measured_as_one(experiments: Experiments) -> None:
    given = experiments.document(injecting(FREEZE, 1.0), low=0.5, during="watch")
    evidence = experiments.run(given)
    assert evidence.status == "completed"
    assert evidence.leftovers == ()
    assert [step.succeeded for step in evidence.steps] == [True]
    hung = at(evidence, "reverted") - at(evidence, "inject")
    found = findings(evidence)
    recovery = found.faults[0].recovery
    assert recovery is not None
    assert recovery.outage is not None
    # Requests come 25 ms apart on average: what is between two is not known.
    assert recovery.outage.seconds == pytest.approx(hung, abs=0.25)
    phases = [check.phase for check in evidence.checks]
    assert phases == sorted(phases, key=["before", "during", "after"].index)
    assert phases.count("after") == 1
    assert phases.count("during") >= 3
    # It went on until it was told to end, which is no interruption.
    assert evidence.load is not None
    assert not evidence.load.about.interrupted
    assert not (evidence.load.requests.outcome == Outcome.UNSENT).any()


def test_what_the_model_answers_before_is_right_afterwards(
    triton_process: EmbeddedTriton,
) -> None:
    loaded = experiment.parse(short_experiment(of_process(triton_process)), "test")
    load = loaded.experiment.extension.load
    assert load is not None
    scenario = loaded.scenario(load, triton_process.grpc, 1.0)
    target = scenario.target.target()
    known = with_right_answers(target, prepared(scenario), 5.0).entries[0]
    assert all(set(body.expected) == {"probabilities"} for body in known.bodies)
    body = known.bodies[0]
    right = replace(known, bodies=(body,))
    shifted = {name: np.roll(value, 1) for name, value in body.expected.items()}
    wrong = replace(known, bodies=(replace(body, expected=shifted),))
    for entry, outcome in ((right, Outcome.OK), (wrong, Outcome.WRONG)):
        found = run_closed(
            target, Mix((entry,)), concurrency=1, duration_seconds=5, requests=5
        )
        assert (found.requests.outcome == outcome).all()


def test_a_fault_that_ended_before_its_undo_is_no_result(
    experiments: Experiments,
) -> None:
    hog = {"kind": "cpu_hog", "processes": 1, "busy_percent": 1, "longest_seconds": 0.5}
    wait = {"type": "action", "name": "undo", "provider": provider("undo")}
    wait["pauses"] = {"before": 1.5}
    given = experiments.document(injecting(hog, 0.1), wait)
    evidence = experiments.run(given, NAME, "host")
    assert evidence.status == "completed"
    found = findings(evidence)
    # A busy machine serves too slowly for a while, which is a finding and comes first.
    assert found.verdict in {"invalid", "finding"}
    assert "cpu_hog had ended before its undo: 0 of 1 processes run" in found.reasons


def test_a_steady_state_that_does_not_hold_breaks_nothing(
    experiments: Experiments,
) -> None:
    given = experiments.document(injecting(FREEZE, 1.0))
    # Nothing is answered faster than light.
    fast = availability(0.0, tolerance=[0.0, 1e-9], name="latency")
    fast["provider"] = provider("latency", window_seconds=0.5)
    given["steady-state-hypothesis"]["probes"].append(fast)
    evidence = experiments.run(given)
    assert evidence.status == "failed"
    assert evidence.steps == ()
    assert not [e for e in evidence.events if e.what == "inject"]
    assert "did not hold before the method: latency was" in evidence.problems[0]
    # INVALID where this machine delays the sender.
    assert findings(evidence).verdict in {"failed", "invalid"}


def test_an_action_that_raises_fails_the_experiment(experiments: Experiments) -> None:
    wrong = {
        "type": "action",
        "name": "no sidecar to ask",
        "provider": provider("metric", name="triton_up"),
    }
    given = experiments.document(injecting(FREEZE, 0.1), wrong, injecting(FREEZE, 5.0))
    evidence = experiments.run(given)
    assert evidence.status == "failed"
    assert [step.succeeded for step in evidence.steps] == [True, False]
    assert "no sidecar to ask" in evidence.problems[0]
    assert findings(evidence).verdict == "failed"
    assert experiments.well()


@pytest.mark.parametrize(
    ("part", "wrong", "said"),
    [
        ("method", provider("undoo"), "found no function 'undoo'"),
        ("method", provider("availability", window=1), "unexpected keyword"),
        ("rollbacks", provider("inject", fault=FREEZE), "inject outside of the method"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_before_the_run(
    experiments: Experiments, part: str, wrong: dict[str, Any], said: str
) -> None:
    given = experiments.document(injecting(FREEZE, 0.1))
    given[part] = [{"type": "action", "name": "wrong", "provider": wrong}]
    with pytest.raises(ConfigError, match=said):
        experiment.parse(given, "test")


def test_nothing_is_broken_while_faults_of_an_earlier_run_are_left(
    experiments: Experiments,
) -> None:
    experiments.state.mkdir()
    left = {"processes": []}
    fault = {"open": 1, "kind": "freeze_server", "record": left}
    journal = abandoned(experiments.state, {"run": "gone"}, fault)
    with pytest.raises(JournalError, match="has left freeze_server; run `tritonwatch"):
        experiments.run(experiments.document(injecting(FREEZE, 0.1)))
    # What is left on another host that shares the folder is of no concern here.
    abandoned(experiments.state, {"run": "gone", "host": "elsewhere"}, fault)
    require_undone(experiments.state, NAME)
    journal.unlink()


def test_an_experiment_on_the_same_target_is_refused_before_each_repetition(
    experiments: Experiments,
) -> None:
    given = experiments.document(injecting(FREEZE, 0.1), repetitions=3)
    others: list[Journal] = []

    def begin(line: str) -> None:  # at the same time, and outlives the first one
        if line.startswith("recovery") and not others:
            # An experiment on another target is of no concern.
            for name in ("process:other", NAME):
                own = name.replace(":", "-")
                others.append(Journal.create(experiments.state, own, target=name))

    try:
        options = RunOptions(allow=(NAME,), state=experiments.state, progress=begin)
        (only,) = run(experiment.parse(given, "test"), options)
        assert only.problems[-1].startswith("repetition 2 of 3 did not run")
        said = f"another experiment on {NAME} is running"
        assert said in only.problems[-1]
        with pytest.raises(JournalError, match=said):
            experiments.run(given)
    finally:
        for journal in others:
            journal.end()


def test_a_run_whose_faults_another_process_undid_has_no_result(
    experiments: Experiments,
) -> None:
    def undo(line: str) -> None:
        if line.startswith("injected"):
            state = ("--state", str(experiments.state))
            program = Path(sys.executable).with_name("tritonwatch")
            subprocess.run([program, "chaos", "undo", "--force", *state], check=True)

    options = RunOptions(allow=(NAME,), state=experiments.state, progress=undo)
    given = experiment.parse(experiments.document(injecting(FREEZE, 0.5)), "test")
    (only,) = run(given, options)
    said = "freeze_server was undone by another process, like `chaos undo --force`"
    assert said in only.problems
    assert findings(only).verdict == "failed"
    assert experiments.well()


def test_a_crossed_limit_ends_the_experiment_and_undoes(
    experiments: Experiments,
) -> None:
    limit = availability(0.5, for_seconds=0.3)
    given = experiments.document(injecting(FREEZE, 20.0), abort=[limit])
    evidence = experiments.run(given)
    assert evidence.status == "aborted"
    aborted, reverted = at(evidence, "abort"), at(evidence, "reverted")
    print(f"undone {reverted - aborted:.3f} s after the abort")
    # The window and the time for which it may be so, and a second to act on it.
    assert aborted - at(evidence, "injected") < 0.5 + 0.3 + 1.0
    assert reverted - aborted < 1.0
    assert experiments.well()


def test_repetitions_before_one_that_did_not_come_up_are_kept(
    experiments: Experiments,
) -> None:
    kill = injecting({"kind": "kill_server"}, 0.5)
    loaded = experiment.parse(experiments.document(kill, repetitions=3), "test")
    try:
        (only,) = run(loaded, RunOptions(allow=(NAME,), state=experiments.state))
    finally:
        experiments.server.start()
    assert only.load is not None
    assert "repetition 2 of 3 did not run: found no tritonserver" in only.problems[-1]
    assert findings(only).verdict == "failed"


def test_a_target_that_is_not_on_the_list_is_refused(experiments: Experiments) -> None:
    given = experiments.document(injecting(FREEZE, 1.0))
    with pytest.raises(NotAllowedError, match="give --allow process:test if it may"):
        experiments.run(given, "process:other")
    assert experiments.left() == []


def test_a_missing_privilege_is_refused_before_anything_is_touched(
    experiments: Experiments, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_pid: int, _number: int) -> None:
        raise PermissionError

    given = experiments.document(
        injecting(FREEZE, 1.0), injecting({"kind": "kill_server"}, 1.0)
    )
    before = experiments.server.pid
    monkeypatch.setattr("loadtests.chaos.faults.needs.os.kill", away)
    with pytest.raises(
        FaultRefusedError, match="belongs to another user; run as that user"
    ):
        experiments.run(given)
    assert experiments.server.pid == before
    assert experiments.well()


def test_a_probe_outside_of_an_experiment_says_how_to_run_one() -> None:
    with pytest.raises(toolkit.NotRunningError, match="tritonwatch chaos run FILE"):
        toolkit.availability()


def test_the_embedded_target_is_killed_found_out_and_back(tmp_path: Path) -> None:
    """The whole: its own server, sidecar and restart, and what the sidecar said."""
    # Away for longer than from one look of the sidecar to the next.
    again = {"delay_seconds": 2.0}
    target = {"kind": "embedded", "models": [MODEL], "sidecar": {}, "restart": again}
    document = short_experiment(
        target,
        injecting({"kind": "kill_server"}, 4.0),
        # The server starts again within these.
        timing={"before_seconds": 2, "after_seconds": patience(8)},
        recovery={"window_seconds": 0.5, "hold_seconds": 1},
        detect={"metric": "triton_up == 0", "within_seconds": 5},
    )
    loaded = experiment.parse(document, "killed")
    evidence = run(loaded, RunOptions(state=tmp_path / "state"))[0]
    assert evidence.status == "completed"
    assert at(evidence, "server_gone") < at(evidence, "server_ready")
    found = findings(evidence)
    assert found.faults[0].signals[0].in_time
    recovery = found.faults[0].recovery
    assert recovery is not None
    assert recovery.state == "recovered", recovery.reason
    told = evidence.of_metric("triton_run_info")
    assert {one.labels["kind"] for one in told} == {"chaos"}
    told.sort(key=lambda one: one.at_seconds)
    assert [one.labels["phase"] for one in told] == ["before", "during", "after"]
    assert list((tmp_path / "state").iterdir()) == []
