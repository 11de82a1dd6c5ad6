"""FakeTriton scripted to falsify its statistics and metrics."""

from __future__ import annotations

import json

import pytest
import tritonclient.grpc as triton
from fault_clients import grpc_infer, metric, statistics
from triton_clients import call

from exporter.testing import FakeModel, Frozen, Shifted, Zeroed


class TestCounters:
    def test_frozen_statistics_stay_while_requests_are_served(self, fake):
        grpc_infer(fake)
        fake.on("statistics").reply(Frozen())
        before = statistics(fake)
        grpc_infer(fake)
        assert statistics(fake) == before
        assert metric(fake, "nv_inference_count") == 2
        fake.behave()
        assert statistics(fake)["inference_count"] == 2

    def test_statistics_go_backwards_for_one_model_whichever_way_they_are_asked(
        self, fake
    ):
        fake.served("m", 10)
        fake.served("n", 10)
        fake.on("statistics", model="m").reply(Shifted(-3))
        assert statistics(fake)["inference_count"] == 7
        assert statistics(fake, "n")["inference_count"] == 10
        _, body = call(fake.http, "GET", "/v2/models/m/stats")
        assert json.loads(body)["model_stats"][0]["inference_count"] == 7
        with triton.InferenceServerClient(fake.grpc) as client:
            rows = client.get_inference_statistics().model_stats
        assert [row.inference_count for row in rows] == [7, 10]

    @pytest.mark.parametrize(("by", "shown"), [(-100, 0), (2**64, 2**64 - 1)])
    def test_shifted_counters_stay_what_the_wire_can_hold(self, fake, by, shown):
        fake.served("m", 10)
        fake.on("statistics").reply(Shifted(by))
        assert statistics(fake)["inference_count"] == shown
        with triton.InferenceServerClient(fake.grpc) as client:
            row = client.get_inference_statistics("m").model_stats[0]
        assert row.inference_count == shown

    def test_metrics_stay_at_zero_while_the_statistics_count(self, fake):
        fake.on("metrics").reply(Zeroed())
        grpc_infer(fake)
        assert metric(fake, "nv_inference_request_success") == 0
        assert statistics(fake)["inference_count"] == 1

    def test_metrics_of_one_model_can_freeze(self, fake):
        fake.served("m", 1)
        fake.on("metrics", model="m").reply(Frozen())
        fake.served("m", 1)
        fake.served("n", 1)
        assert metric(fake, "nv_inference_count") == 1
        assert metric(fake, "nv_inference_count", "n") == 1
        assert statistics(fake)["inference_count"] == 2

    def test_a_model_added_after_the_freeze_is_shown_as_it_is(self, fake):
        fake.on("statistics").reply(Frozen())
        fake.add(FakeModel("late"))
        fake.served("late", 5)
        assert statistics(fake, "late")["inference_count"] == 5

    def test_each_model_keeps_its_own_falsification(self, fake):
        fake.served("m", 10)
        fake.served("n", 10)
        fake.on("statistics", model="m").reply(Zeroed())
        fake.on("statistics", model="n").reply(Shifted(1))
        assert statistics(fake, "m")["inference_count"] == 0
        assert statistics(fake, "n")["inference_count"] == 11

    def test_counters_can_be_reset_as_by_a_restart(self, fake):
        grpc_infer(fake)
        fake.reset_counters()
        assert statistics(fake)["inference_count"] == 0
        assert metric(fake, "nv_inference_count") == 0
