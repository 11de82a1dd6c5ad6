"""Models of FakeTriton that are loaded, unloaded, added, removed and vanish, whatever their names."""

from __future__ import annotations

import json

import pytest
from triton_clients import call, client, counters, get_json, infer, infer_json, metric
from tritonclient.utils import InferenceServerException

from exporter.testing import HOSTILE_NAMES, FakeModel, FakeTriton, many


class TestRepository:
    def test_a_reload_resets_the_statistics_while_the_metrics_go_on(self, fake):
        infer(fake)
        fake.load("m")
        infer(fake)
        assert counters(fake)["inference_count"] == 1
        assert metric(fake, "nv_inference_count", model="m") == 2

    def test_an_unloaded_model_is_listed_unavailable_and_comes_back_at_zero(self, fake):
        infer(fake)
        fake.unload("m", "out of memory")
        assert index(fake) == [("m", "UNAVAILABLE", "out of memory")]
        assert get_json(fake.http, "/v2/models/stats") == {"model_stats": []}
        status, body = call(fake.http, "GET", "/v2/models/m")
        assert status == 404
        assert b"has no available versions" in body
        fake.load("m")
        assert index(fake) == [("m", "READY", "")]
        assert counters(fake)["inference_count"] == 0
        assert metric(fake, "nv_inference_count", model="m") == 0

    def test_models_can_be_loaded_and_unloaded_over_both_protocols(self, fake):
        with client(fake) as connected:
            connected.unload_model("m")
            assert not connected.is_model_ready("m")
            assert call(fake.http, "POST", "/v2/repository/models/m/load")[0] == 200
            assert connected.is_model_ready("m")
            assert call(fake.http, "POST", "/v2/repository/models/m/unload")[0] == 200
            assert not connected.is_model_ready("m")
            with pytest.raises(InferenceServerException, match="failed to load 'x'"):
                connected.load_model("x")

    def test_models_come_and_go_while_it_runs(self, fake):
        fake.add(FakeModel("late"))
        infer(fake, "late")
        assert [name for name, _, _ in index(fake)] == ["late", "m"]
        fake.remove("late")
        assert [name for name, _, _ in index(fake)] == ["m"]
        assert call(fake.http, "GET", "/v2/models/late")[0] == 404

    def test_a_vanished_model_is_listed_ready_and_found_by_no_other_call(self, fake):
        fake.vanish("m")
        assert index(fake) == [("m", "READY", "")]
        assert call(fake.http, "GET", "/v2/models/m")[0] == 404
        assert call(fake.http, "GET", "/v2/models/m/config")[0] == 404
        assert call(fake.http, "GET", "/v2/models/m/ready")[0] == 400
        assert get_json(fake.http, "/v2/models/stats") == {"model_stats": []}
        with pytest.raises(InferenceServerException) as caught:
            infer(fake)
        assert caught.value.status() == "StatusCode.NOT_FOUND"

    def test_500_models_are_listed_counted_and_served_on_every_port(self):
        with FakeTriton(many(500)) as fake, client(fake) as connected:
            listed = connected.get_model_repository_index().models
            assert [each.name for each in listed][:2] == ["model_000", "model_001"]
            assert len(listed) == len(index(fake)) == 500
            assert len(connected.get_inference_statistics().model_stats) == 500
            assert len(get_json(fake.http, "/v2/models/stats")["model_stats"]) == 500
            infer(fake, "model_499")
            assert metric(fake, "nv_inference_count", model="model_499") == 1

    @pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
    def test_hostile_names_arrive_whole_on_every_port(self, name):
        model = FakeModel(name)
        with FakeTriton([model], decodes_urls=True) as fake, client(fake) as connected:
            (listed,) = connected.get_model_repository_index().models
            assert listed.name == name
            assert connected.get_model_metadata(name).name == name
            assert index(fake) == [(name, "READY", "")]
            infer(fake, name)
            path = "".join(f"%{byte:02x}" for byte in name.encode())
            assert get_json(fake.http, f"/v2/models/{path}")["name"] == name
            assert (
                call(fake.http, "POST", f"/v2/models/{path}/infer", infer_json())[0]
                == 200
            )
            escaped = name.replace("\\", r"\\").replace('"', r"\"")
            escaped = escaped.replace("\n", r"\n")
            assert metric(fake, "nv_inference_count", model=escaped) == 2
            assert {each.model for each in fake.requests if each.model} == {name}


def index(fake):
    status, body = call(fake.http, "POST", "/v2/repository/index")
    assert status == 200
    return [
        (each["name"], each["state"], each.get("reason", ""))
        for each in json.loads(body)
    ]
