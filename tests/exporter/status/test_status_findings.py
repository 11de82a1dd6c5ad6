"""What is wrong, and what that makes of a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exporter import catalogue
from exporter.access.inventory import Inventory
from exporter.features.slo.objectives import (
    AvailabilityObjective,
    LatencyObjective,
    SignalObjective,
)
from exporter.samples import Sample
from exporter.status.status_findings import findings, is_chance, state_of
from exporter.triton.protocol_types import IndexEntry

KEY = ("m", "1")
OTHER = ("n", "2")
SERVING = {KEY: True, OTHER: True}


def index(**states: str) -> Inventory:
    entries = [
        IndexEntry("m", "1", states.get("m", "READY")),
        IndexEntry("n", "2", states.get("n", "READY")),
        IndexEntry("unloaded", "1", ""),
    ]
    return Inventory(up=True, ready=True, index=tuple(entries))


def judged(samples, inventory=None, serving=SERVING, objectives=()):
    inventory = inventory or index()
    found = findings(samples, inventory, serving, objectives)
    states = {key: state_of(key, found, inventory, serving) for key in (KEY, OTHER)}
    return found, states


BOTH_WELL = {KEY: "SERVING", OTHER: "SERVING"}


def test_without_anything_wrong_models_serve():
    well = [
        Sample(catalogue.GOLDEN_FAILING, 0, (*KEY, "set", "labels")),
        Sample(catalogue.MODEL_DRIFT_ALARM, 0, ("m",)),
        Sample(catalogue.SPC_ALARM, 0, ("signal", "cusum")),
        Sample(catalogue.SLO_BUDGET, 0.5, ("fast",)),
        Sample(catalogue.SEVERAL_SERVERS, 0),
        Sample(catalogue.OUTCOMES_DOUBTFUL, 0, KEY),
    ]
    assert judged(well) == ([], BOTH_WELL)


def test_a_model_that_denies_its_readiness_is_not_ready():
    denied = replace(index(), denying=frozenset({KEY}))
    [finding], states = judged([], denied)
    assert (finding.text, states[KEY]) == ("is not ready", "DOWN")


def test_a_watch_that_cannot_work_is_a_problem_and_no_verdict_on_the_model():
    blind = [
        Sample(catalogue.GOLDEN_USABLE, 0, (*KEY, "set")),
        Sample(catalogue.GOLDEN_USABLE, 1, (*OTHER, "set")),
        Sample(catalogue.DRIFT_STATE, 1, ("m", "inputs", "refused")),
        Sample(catalogue.DRIFT_STATE, 0, ("m", "outputs", "refused")),
        Sample(catalogue.DRIFT_STATE, 1, ("n", "inputs", "watching")),
    ]
    found, states = judged(blind)
    assert [(f.model, f.runbook) for f in found] == [
        ("m", "TritonGoldenUnusable"),
        ("m", "TritonDriftReferenceRefused"),
    ]
    assert states == BOTH_WELL


@pytest.mark.parametrize(
    ("serving", "said"),
    [({}, "its probes prove nothing: why"), (SERVING, "some of its probes prove")],
)
def test_probes_that_prove_nothing_beside_one_that_does_are_some(serving, said):
    [finding] = findings(
        [], index(), serving, (), probed={"configuration": {KEY: "why"}}
    )
    assert finding.text.startswith(said)


def test_a_version_that_another_one_replaced_is_no_problem():
    old = IndexEntry("m", "0", "UNAVAILABLE", "unloaded")
    failed = IndexEntry("m", "2", "UNAVAILABLE", "Internal: no such module")
    inventory = replace(index(), index=(old, *index().index, failed))
    found, states = judged([], inventory)
    assert [(f.model, f.version) for f in found] == [failed.key]
    assert states == BOTH_WELL
    # With no other version it is gone.
    found, _ = judged([], replace(inventory, index=(old,)))
    assert [f.text for f in found] == ["is not ready"]


def test_collectors_without_results_are_named():
    [finding] = findings([], index(), SERVING, (), failing=[("energy", "no GPU")])
    assert (finding.subject, finding.runbook) == ("energy", "TritonwatchCollectorStale")
    assert "no GPU" in finding.text


def test_what_was_not_proven_is_unknown():
    assert judged([], serving={KEY: True}) == ([], BOTH_WELL | {OTHER: "UNKNOWN"})


def test_of_a_server_that_is_down_only_that_is_said():
    down = Inventory(up=False, ready=False, index=index().index)
    alarm = Sample(catalogue.MODEL_DRIFT_ALARM, 1, ("m",))
    found, states = judged([alarm], down, {KEY: False, OTHER: False})
    assert [(f.subject, f.text) for f in found] == [("The server", "does not answer")]
    assert states == {KEY: "DOWN", OTHER: "DOWN"}


@pytest.mark.parametrize(
    ("sample", "state", "subject", "text"),
    [
        (
            Sample(catalogue.GOLDEN_FAILING, 1, (*KEY, "set", "labels")),
            "LYING",
            "m",
            "returns wrong answers: golden accuracy fell",
        ),
        (
            Sample(catalogue.OUTCOMES_DOUBTFUL, 1, KEY),
            "FAILING",
            "m",
            "answers with errors that Triton counts as successes",
        ),
        (Sample(catalogue.MODEL_DRIFT_ALARM, 1, ("m",)), "DRIFTED", "m", "its data drifted"),
        (
            Sample(catalogue.SPC_ALARM, 1, ("signal", "cusum")),
            "SERVING",
            "signal",
            "its control chart is out of control",
        ),
        (
            Sample(catalogue.SEVERAL_SERVERS, 1),
            "SERVING",
            "The server",
            "several servers answer at its address: all counts are one's",
        ),
    ],
)  # fmt: skip
def test_one_thing_wrong_is_one_finding_and_one_state(sample, state, subject, text):
    [finding], states = judged([sample])
    assert (finding.subject, finding.text) == (subject, text)
    assert states == {KEY: state, OTHER: "SERVING"}


@pytest.mark.parametrize(
    ("refused", "more"),
    [("none", ""), ("tails", "; its false-alarm rate is not guaranteed (tails)")],
)
def test_an_alarm_of_a_chart_without_a_guarantee_says_so(refused, more):
    assumptions = ("triton_probe_duration_seconds", "independent", "false", refused)
    alarm = Sample(catalogue.SPC_ALARM, 1, ("signal", "cusum"))
    [finding], _ = judged(
        [alarm, Sample(catalogue.SPC_INFO, 1, ("signal", *assumptions))]
    )
    assert finding.text == f"its control chart is out of control{more}"


@pytest.mark.parametrize(
    ("outcome", "text", "runbook"),
    [
        ("stalled", "a streamed answer to a probe came later", "TritonProbesFailing"),
        ("backlog", "serves other clients, but had no room", "TritonQueueGrowth"),
    ],
)
def test_a_model_that_is_too_slow_for_its_probes_is_slow(outcome, text, runbook):
    [finding] = findings([], index(), SERVING, (), probed={outcome: {KEY: "why"}})
    assert (finding.subject, finding.runbook) == ("m", runbook)
    assert finding.text.startswith(text)
    assert state_of(KEY, [finding], index(), SERVING) == "SLOW"
    assert state_of(OTHER, [finding], index(), SERVING) == "SERVING"


def test_the_features_that_drifted_are_named():
    [finding], _ = judged(
        [
            Sample(catalogue.MODEL_DRIFT_ALARM, 1, ("m",)),
            Sample(catalogue.FEATURE_DRIFT_ALARM, 1, ("m", "age")),
            Sample(catalogue.FEATURE_DRIFT_ALARM, 0, ("m", "sex")),
            Sample(catalogue.FEATURE_DRIFT_ALARM, 1, ("n", "price")),
        ]
    )
    assert finding.text == "its data drifted: age"


def test_a_model_that_does_not_serve_is_down_whatever_else_it_is():
    lies = Sample(catalogue.GOLDEN_FAILING, 1, (*KEY, "set", "labels"))
    found, states = judged([lies], serving={KEY: False, OTHER: True})
    assert {f.text for f in found} == {
        "is ready, but does not answer correctly in time",
        "returns wrong answers: golden accuracy fell",
    }
    assert states == {KEY: "DOWN", OTHER: "SERVING"}


def test_a_model_that_is_not_ready_is_down():
    [finding], states = judged([], index(n="LOADING"), {KEY: True})
    assert (finding.subject, finding.text) == ("n", "is not ready")
    assert states == {KEY: "SERVING", OTHER: "DOWN"}


LATENCY = LatencyObjective(
    name="fast", objective_ratio=0.99, models="m", threshold_seconds=0.1
)
AVAILABLE = AvailabilityObjective(name="answers", objective_ratio=0.99, models="n")
SIGNAL = SignalObjective(
    name="power", objective_ratio=0.9, models="m", metric="triton_gpu_power_watts", at_most=1
)  # fmt: skip


@pytest.mark.parametrize(
    ("objective", "states"),
    [
        (LATENCY, BOTH_WELL | {KEY: "SLOW"}),
        (
            LATENCY.model_copy(update={"kind": "first_response"}),
            BOTH_WELL | {KEY: "SLOW"},
        ),
        (
            LATENCY.model_copy(update={"kind": "response_gap"}),
            BOTH_WELL | {KEY: "SLOW"},
        ),
        (AVAILABLE, BOTH_WELL | {OTHER: "FAILING"}),
        (SIGNAL, BOTH_WELL),
        (LATENCY.model_copy(update={"models": "*"}), BOTH_WELL),  # which one?
    ],
)
def test_a_burning_objective_makes_its_only_model_slow_or_failing(objective, states):
    burning = Sample(catalogue.SLO_BURNING, 1, (objective.name,))
    [finding], found = judged([burning], objectives=[objective])
    assert finding.subject == objective.name
    assert found == states


@pytest.mark.parametrize(
    ("mode", "metric", "state"),
    [
        ("ab", "latency_mean", "SLOW"),
        ("ab", "success", "SERVING"),
        ("shadow", "latency_mean", "SERVING"),
    ],
)
def test_a_worse_challenger_is_slow_where_production_waits_for_it(mode, metric, state):
    [finding], states = judged(
        [
            Sample(catalogue.COMPARISON_VERDICT, 1, ("new", metric, "worse")),
            Sample(catalogue.COMPARISON_VERDICT, 1, ("new", "energy", "better")),
            Sample(catalogue.COMPARISON_INFO, 1, ("new", "m:1", "n:2", mode)),
        ]
    )
    assert (finding.subject, finding.text) == ("new", f"n:2 is worse in {metric}")
    assert states == BOTH_WELL | {OTHER: state}


@pytest.mark.parametrize("champion", ["m", "m:1"])
def test_a_challenger_that_is_worse_than_a_wrong_champion_is_said_to_be_so(champion):
    found, _ = judged(
        [
            Sample(catalogue.GOLDEN_FAILING, 1, ("m", "1", "golden", "labels")),
            Sample(catalogue.COMPARISON_VERDICT, 1, ("new", "agreement", "worse")),
            Sample(catalogue.COMPARISON_INFO, 1, ("new", champion, "n:2", "shadow")),
        ]
    )
    text = "n:2 is worse in agreement, but the champion returns wrong answers"
    assert text in [finding.text for finding in found]


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    # 1 % may be bad. p = 0.39, 0.09, 0.014 and, of 40, 0; of 100, one may be bad.
    [
        (49, 1, True),
        (48, 2, True),
        (47, 3, False),
        (0, 40, False),
        (98, 1, True),
        (99, 1, False),
        (0, 0, True),
    ],
)
def test_chance_explains_few_bad_events_of_few(good, bad, expected):
    assert is_chance(0.99, good, bad) is expected


@pytest.mark.parametrize(
    ("good", "bad", "is_told"),
    [(49, 1, False), (47, 3, True)],
)
def test_a_budget_is_not_spent_by_a_few_bad_events_of_few(good, bad, is_told):
    found, _ = judged(
        [
            Sample(catalogue.SLO_EVENTS, good, (LATENCY.name, "good")),
            Sample(catalogue.SLO_EVENTS, bad, (LATENCY.name, "bad")),
            Sample(catalogue.SLO_BUDGET, -1, (LATENCY.name,)),
        ],
        objectives=[LATENCY],
    )
    assert [f.text for f in found] == ["objective's error budget is spent"] * is_told
