"""The threads of a shadow comparison, on a scripted server: order, patience, restart."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from accesses import access_to
from fake_triton import FakeModel, FakeTriton
from waiting import patience

from exporter.access.inventory import Inventory, InventoryBoard
from exporter.access.work_board import ModelWork, WorkSnapshot
from exporter.features.comparison.comparison_budget import Wait
from exporter.features.comparison.comparison_inputs import difference
from exporter.features.comparison.comparison_settings import ComparisonSettings
from exporter.features.comparison.shadow_comparison import Shadow
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import ModelSpec, TensorSpec

WORK = ModelWork(busy_seconds=0.0, production_busy_seconds=0.0, inferences=0)


@pytest.fixture
def shadow():
    with FakeTriton([FakeModel("m", versions=("1", "2", "3"))]) as fake:
        grpc = GrpcClient(fake.grpc)
        board = InventoryBoard()
        access = access_to(grpc, board=board)

        def hold(*versions, loaded_at=0.0, **changes):
            specs = {
                ("m", v): replace(grpc.model_spec("m", v, timeout_seconds=5), **changes)
                for v in versions
            }
            loads = dict.fromkeys(specs, loaded_at)
            board.publish(Inventory(up=True, ready=True, models=specs, loaded_at=loads))

        hold("1", "2")
        started = []

        def start(**changes):
            settings = ComparisonSettings.model_validate(
                {
                    "name": "test",
                    "champion": "m:1",
                    "challenger": "m:2",
                    "metrics": ["agreement", "success"],
                    "budget": {
                        "idle_pairs_per_second": 500,
                        "max_pairs_per_second": 500,
                    },
                    **changes,
                }
            )
            found = Shadow(settings, access)
            started.append(found)
            until(found, lambda: found.keys is not None)
            # Two looks without a rise, far enough apart: production is idle.
            for at in (0.0, 5.0):
                access.work.publish(WorkSnapshot(at, {("m", v): WORK for v in "123"}))
                found.update()
            return found

        start.hold, start.access = hold, access  # type: ignore[attr-defined]
        yield start
        for one in started:
            one.close()
        grpc.close()


def until(shadow, holds):
    deadline = time.monotonic() + patience()
    while not holds():
        assert time.monotonic() < deadline, (shadow.outcomes, shadow.problem)
        shadow.update()
        time.sleep(0.01)


def test_both_are_asked_the_same_and_counted_as_our_own(shadow):
    found = shadow()
    until(found, lambda: found.outcomes["both"] >= 30)
    counts = [shadow.access.own.counts(("m", v)) for v in "12"]
    assert min(c.ok for c in counts) >= 30
    assert abs(counts[0].ok - counts[1].ok) <= 8


def test_it_ends_when_it_has_all_its_pairs(shadow):
    found = shadow(max_pairs=100)
    until(found, lambda: found.complete)
    time.sleep(0.2)
    settled = found.outcomes
    time.sleep(0.3)
    assert found.outcomes == settled
    assert 100 <= found.pairs.count <= 110


def test_another_latest_version_or_load_begins_anew(shadow):
    found = shadow(champion="m:1", challenger="m")
    until(found, lambda: found.outcomes["both"] >= 20)
    assert found.keys == (("m", "1"), ("m", "2"))
    first = found.pairs
    shadow.hold("1", "2", loaded_at=1.0)
    until(found, lambda: found.pairs is not first)
    second = found.pairs
    shadow.hold("1", "2", "3", loaded_at=1.0)
    until(found, lambda: found.keys == (("m", "1"), ("m", "3")))
    assert found.pairs is not second


def test_a_model_that_is_back_is_no_problem_though_its_next_pair_has_to_wait(shadow):
    found = shadow(budget={"idle_pairs_per_second": 0.001})
    first = found.pairs
    shadow.hold("1")
    until(found, lambda: "m:2 is not among" in found.problem)
    shadow.hold("1", "2", loaded_at=1.0)
    until(found, lambda: found.pairs is not first)
    assert found.problem == ""


def test_final_verdicts_stay_with_a_model_that_left_and_not_with_a_new_version(shadow):
    found = shadow(champion="m:1", challenger="m", max_pairs=100)
    until(found, lambda: found.complete)
    shadow.hold("2")
    time.sleep(0.5)
    assert (found.complete, found.problem) == (True, "")
    shadow.hold("1", "2", "3")
    until(found, lambda: found.keys == (("m", "1"), ("m", "3")))
    until(found, lambda: found.complete)


@pytest.mark.parametrize(
    ("source", "values", "known"),
    [("golden", None, True), ("synthetic", None, False), ("synthetic", [1.5], True)],
)
def test_times_of_inputs_that_a_cache_may_know_have_no_verdict(
    shadow, tmp_path, source, values, known
):
    shadow.hold("1", "2", response_cache=True)
    [tensor] = shadow.access.board.current.models["m", "1"].inputs
    file = tmp_path / "rows.npz"
    np.savez(file, **{tensor.name: np.ones((3, *tensor.shape[1:]), np.float32)})
    metrics, inputs = ["latency_p50"], {"source": source, "file": str(file)}
    inputs["overrides"] = {tensor.name: {"values": values}} if values else {}
    found = shadow(metrics=metrics, inputs=inputs, max_pairs=300)
    until(found, lambda: found.complete)
    withheld = found.intervals()["latency_p50"].withheld
    assert ("response cache" in withheld) == known


def test_a_model_that_goes_is_told_and_its_return_goes_on(shadow):
    found = shadow()
    until(found, lambda: found.outcomes["both"] >= 5)
    shadow.hold("1")
    until(found, lambda: found.problem == "m:2 is not among the server's ready models")
    asked = found.outcomes["both"]
    shadow.hold("1", "2")
    until(found, lambda: found.outcomes["both"] > asked and not found.problem)


def test_nothing_is_asked_of_an_idle_champion_without_an_idle_rate(shadow):
    found = shadow(budget={"idle_pairs_per_second": 0})
    until(found, lambda: found.keys is not None)
    time.sleep(0.3)
    assert sum(found.outcomes.values()) == 0
    assert found.budget_used == {}
    assert found.wait == Wait(math.inf, "idle")


def test_a_comparison_without_an_input_says_that_it_waits_for_one(shadow):
    found = shadow(inputs={"source": "mirror"})
    until(found, lambda: found.wait == Wait(math.inf, "inputs"))
    assert sum(found.outcomes.values()) == 0


def test_a_look_seen_twice_does_not_say_that_production_rests(shadow):
    most = {"idle_pairs_per_second": 500, "max_pairs_per_second": 500}
    found = shadow(budget={**most, "request_ratio": 0.01, "busy_ratio": 1})
    until(found, lambda: found.outcomes["both"] >= 5)
    served = ModelWork(busy_seconds=9.0, production_busy_seconds=9.0, inferences=1000)
    look = WorkSnapshot(10.0, {("m", "1"): served, ("m", "2"): WORK})
    shadow.access.work.publish(look)
    found.update()
    time.sleep(0.2)
    asked = sum(found.outcomes.values())
    for _ in range(20):
        found.update()
        time.sleep(0.02)
    # What production has earned so far, and no idle hours.
    assert sum(found.outcomes.values()) <= asked + 10


def spec(name, inputs, outputs=("y",), **more):
    return ModelSpec(
        name,
        "1",
        tuple(TensorSpec(n, d, s) for n, d, s in inputs),
        tuple(TensorSpec(n, "FP32", (-1, 2)) for n in outputs),
        **more,
    )


X = ("x", "FP32", (-1, 2))


@pytest.mark.parametrize(
    ("challenger", "told"),
    [
        (spec("b", [X]), ""),
        (spec("b", [("x", "FP32", (4, 2))]), ""),
        (spec("b", [("x", "FP64", (-1, 2))]), "FP64[-1, 2] in b 1"),
        (spec("b", [("x", "FP32", (-1, 3))]), "FP32[-1, 3] in b 1"),
        (spec("b", [X, ("z", "FP32", (1,))]), "input 'z' is absent in a 1"),
        (spec("b", [X], outputs=("other",)), "want an output of the same name"),
        (spec("b", [X], decoupled=True), "b is a decoupled model"),
        (spec("b", [X], sequence=True), "b is a sequence model"),
    ],
)
def test_models_that_cannot_be_asked_the_same_are_told_why(challenger, told):
    found = difference(spec("a", [X]), challenger)
    assert told in found
    assert bool(found) == bool(told)
