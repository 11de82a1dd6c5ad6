"""Calls that models make to answer our requests, as the user declares them."""

from __future__ import annotations

import numpy as np
import pytest
from accesses import access_to
from fake_triton import FakeModel, FakeTriton

from exporter import errors
from exporter.access.inventory import Inventory, InventoryBoard
from exporter.access.own_traffic import OwnTraffic
from exporter.features.statistics.statistics_settings import StatisticsSettings
from exporter.own_requests.reach import own_inference
from exporter.runtime.model_mentions import misfits
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import IndexEntry, InferRequest, ModelSpec

PARENT = ModelSpec("parent", "1", (), (), backend="python")
CHILD = ModelSpec("child", "1", (), (), backend="onnxruntime")
MODELS = {(spec.name, spec.version): spec for spec in (PARENT, CHILD)}


class Scene:
    """A statistics collector and our requests to `parent`, which may call `child`."""

    def __init__(self, fake, calls):
        self.fake = fake
        self.grpc = GrpcClient(fake.grpc)
        board = InventoryBoard()
        board.publish(Inventory(up=True, ready=True, models=MODELS))
        own = OwnTraffic(run_id="test")
        self.access = access_to(self.grpc, board=board, own=own)
        settings = StatisticsSettings.model_validate({"calls": calls})
        self.collector = settings.build(self.access)

    def ask(self, spec=PARENT, calls=1, error=None, child="success"):
        x = {"x": np.zeros(1, np.float32)}
        request = InferRequest(spec.name, "1", "tritonwatch-x", x, {"x": "FP32"})
        with own_inference(self.access, spec, request):
            self.fake.served(spec.name, 1)
            if calls and child == "success":
                self.fake.served("child", calls)
            elif calls:
                self.fake.failed("child", calls)
            if error is not None:
                raise error

    def read(self):
        """Return the values of one page by series and labels."""
        return {(s.spec.name, *s.labels): s.value for s in self.collector.collect()
                if hasattr(s, "value")}  # fmt: skip


@pytest.fixture
def scene(request):
    calls = getattr(request, "param", {"parent": {"child": 1}})
    with FakeTriton([FakeModel("parent"), FakeModel("child")]) as fake:
        found = Scene(fake, calls)
        yield found
        found.grpc.close()


def requests_of_child(page):
    return {
        outcome: page["triton_requests_total", "child", "1", outcome]
        for outcome in ("success", "failure")
    }


def unattributed(page, model="child"):
    return page["triton_unattributed_requests_total", model, "1"]


@pytest.mark.parametrize("clients", [0, 5])
def test_declared_calls_of_our_requests_are_not_production(scene, clients):
    scene.read()
    for _ in range(4):
        scene.ask()
        if clients:
            scene.fake.served("child", clients)
        scene.read()
    scene.read()
    page = scene.read()
    assert requests_of_child(page) == {"success": 4 * clients, "failure": 0}
    assert page["triton_inferences_total", "child", "1"] == 4 * clients
    assert page["triton_executions_total", "child", "1"] == 4 * clients
    assert unattributed(page) == 4
    assert page["triton_own_requests_total", "child", "1", "success"] == 4


@pytest.mark.parametrize("scene", [{"parent": {"child": 3}}], indirect=True)
def test_of_the_largest_number_of_calls_only_those_made_are_unattributed(scene):
    scene.read()
    for calls in (1, 0, 3, 2):
        scene.ask(calls=calls)
        scene.read()
    scene.read()
    page = scene.read()
    assert requests_of_child(page) == {"success": 0, "failure": 0}
    assert unattributed(page) == 6


@pytest.mark.parametrize("error", [None, errors.ModelError("after the call")])
@pytest.mark.parametrize("child", ["success", "failure"])
def test_calls_are_ours_whether_parent_or_child_fails(scene, error, child):
    scene.read()
    for _ in range(2):
        try:
            scene.ask(error=error, child=child)
        except errors.ModelError:
            assert error is not None
        scene.read()
    scene.read()
    page = scene.read()
    assert requests_of_child(page) == {"success": 0, "failure": 0}
    assert unattributed(page) == 2


@pytest.mark.parametrize("scene", [{}], indirect=True)
def test_undeclared_calls_count_as_production_and_a_series_says_that_this_may_be(scene):
    assert "triton_model_calls_undeclared" not in {name for name, *_ in scene.read()}
    scene.ask()
    scene.ask(CHILD, calls=0)
    page = scene.read()
    assert requests_of_child(scene.read())["success"] == 1
    shown = {key: value for key, value in page.items() if "undeclared" in key[0]}
    # The backend of the other cannot call.
    assert shown == {("triton_model_calls_undeclared", "parent", "1"): 1}


@pytest.mark.parametrize("scene", [{"parent": {}}], indirect=True)
def test_a_model_can_be_declared_to_call_nothing(scene):
    scene.ask(calls=0)
    assert scene.read()["triton_model_calls_undeclared", "parent", "1"] == 0


def test_declared_names_that_match_no_model_are_reported():
    settings = StatisticsSettings.model_validate(
        {"calls": {"parent": {"child": 1, "chidl": 1}, "gone": {}}}
    )
    index = tuple(IndexEntry(name, "1", "READY", "") for name in ("parent", "child"))
    inventory = Inventory(up=True, ready=True, index=index, models=MODELS)
    found = misfits(settings.model_mentions(), inventory)
    assert {(misfit.place, misfit.nearest) for misfit in found} == {
        ("calls.parent.chidl", "child"),
        ("calls.gone", None),
    }
