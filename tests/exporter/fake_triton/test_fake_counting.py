"""What FakeTriton counts in its statistics and metrics, and what it records of requests."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from triton_clients import (
    ONES,
    call,
    client,
    counters,
    eventually,
    infer,
    infer_json,
    message,
    metric,
    stub,
)

from exporter.testing import (
    FakeModel,
    FakeTensor,
    FakeTriton,
    Hung,
    Limits,
    Slow,
    Timings,
)


class TestCounting:
    TIMED = FakeModel("m", timings=Timings(1000, 20, 300, 4))

    def test_statistics_and_metrics_agree_with_what_was_served(self):
        with FakeTriton([self.TIMED], clock=lambda: 1234.5) as fake:
            infer(fake)
            infer(fake, values=np.ones((3, 4), np.float32))
            call(fake.http, "POST", "/v2/models/m/infer", infer_json())
            row = counters(fake)
            assert row["inference_count"] == 5
            assert row["execution_count"] == 3
            assert row["last_inference"] == 1_234_500
            stats = row["inference_stats"]
            assert stats["success"] == {"count": 3, "ns": 3 * 1324}
            assert stats["fail"] == {"count": 0, "ns": 0}
            assert stats["queue"] == {"count": 3, "ns": 3000}
            assert stats["compute_infer"] == {"count": 3, "ns": 900}
            by_size = {each["batch_size"]: each for each in row["batch_stats"]}
            assert by_size[1]["compute_infer"] == {"count": 2, "ns": 600}
            assert by_size[3]["compute_infer"] == {"count": 1, "ns": 300}
            for name, value in (
                ("nv_inference_request_success", 3),
                ("nv_inference_count", 5),
                ("nv_inference_exec_count", 3),
                ("nv_inference_queue_duration_us", 3),
                ("nv_inference_request_duration_us", 3),
                ("nv_inference_pending_request_count", 0),
            ):
                assert metric(fake, name, model="m", version="1") == value

    def test_statistics_are_the_same_over_grpc(self, fake):
        infer(fake)
        with client(fake) as connected:
            (over_grpc,) = connected.get_inference_statistics("m").model_stats
        row = counters(fake)
        assert over_grpc.inference_count == row["inference_count"] == 1
        assert over_grpc.last_inference == row["last_inference"] > 0
        stats = row["inference_stats"]
        assert over_grpc.inference_stats.success.ns == stats["success"]["ns"] > 0
        assert over_grpc.batch_stats[0].batch_size == 1

    def test_traffic_nobody_sent_counts_an_execution_once_and_its_requests_each(self):
        with FakeTriton([self.TIMED]) as fake:
            fake.served("m", 100, executions=25)
            fake.failed("m", 3, reason="REJECTED")
            fake.failed("m", 2)
            row = counters(fake)
            assert row["inference_count"] == 100
            assert row["execution_count"] == 27
            compute = row["inference_stats"]["compute_infer"]
            assert compute == {"count": 100, "ns": 100 * 300}
            by_size = {each["batch_size"]: each for each in row["batch_stats"]}
            assert by_size[4]["compute_infer"] == {"count": 25, "ns": 25 * 300}
            assert row["inference_stats"]["fail"]["count"] == 5
            failure = "nv_inference_request_failure"
            assert metric(fake, failure, model="m", reason="REJECTED") == 3
            assert metric(fake, failure, model="m", reason="BACKEND") == 2
            assert metric(fake, failure, model="m", reason="OTHER") == 0
            with pytest.raises(ValueError, match="do not divide"):
                fake.served("m", 10, executions=3)

    def test_pending_requests_show_in_the_metrics_while_they_last(self, fake):
        fake.on("infer").reply(Slow(30))
        with stub(fake) as service:
            pending = service.ModelInfer.future(message())
            fake.wait_for("infer")
            gauge = "nv_inference_pending_request_count"
            eventually(lambda: metric(fake, gauge, model="m") == 1, "no pending one")
            pending.cancel()

    def test_further_lines_can_be_shown_on_the_metrics_page(self, fake):
        fake.add_metrics('nv_gpu_power_usage{gpu_uuid="GPU-1"} 0\n')
        assert metric(fake, "nv_gpu_power_usage", gpu_uuid="GPU-1") == 0

    def test_the_metrics_port_knows_one_page(self, fake):
        assert call(fake.metrics, "GET", "/")[0] == 404
        assert call(fake.metrics, "POST", "/metrics")[0] == 405


class TestRecords:
    def test_a_request_is_kept_with_id_headers_tensors_and_deadline(self, fake):
        infer(fake, request_id="id-1", headers={"x-key": "v"}, client_timeout=30)
        body = infer_json(id='id"2', parameters={"priority": 2})
        call(fake.http, "POST", "/v2/models/m/infer", body, [("X-Key", "w")])
        first, second = fake.requests
        assert (first.protocol, second.protocol) == ("grpc", "http")
        assert (first.operation, first.model) == ("infer", "m")
        assert (first.request_id, second.request_id) == ("id-1", 'id"2')
        assert (first.headers["x-key"], second.headers["x-key"]) == ("v", "w")
        assert 0 < first.deadline_seconds <= 30
        assert second.deadline_seconds is None
        assert first.at_seconds < second.at_seconds <= time.monotonic()
        (given,) = first.inputs
        assert (given.name, given.dtype, given.shape) == ("INPUT0", "FP32", (1, 4))
        assert given.data == ONES.tobytes()
        assert second.parameters == {"priority": 2}

    def test_only_the_last_records_and_the_first_bytes_are_kept(self):
        big = FakeModel("m", inputs=(FakeTensor("INPUT0", "UINT8", (5000,)),))
        with FakeTriton([big], limits=Limits(kept_requests=2)) as fake:
            with stub(fake) as service:
                for number in range(3):
                    service.ModelInfer(
                        message(
                            raw=bytes(5000),
                            shape=(1, 5000),
                            dtype="UINT8",
                            id=str(number),
                        )
                    )
            assert [each.request_id for each in fake.requests] == ["1", "2"]
            assert fake.received("infer") == 3
            (given,) = fake.requests[0].inputs
            assert (len(given.data), given.size_bytes) == (4096, 5000)

    def test_overlap_is_measured_for_each_model_and_port(self):
        with (
            FakeTriton([FakeModel("a"), FakeModel("b")]) as fake,
            stub(fake) as service,
        ):
            assert fake.max_concurrent == 0
            with fake.on("infer", model="a").reply(Hung()):
                calls = [service.ModelInfer.future(message("a")) for _ in range(3)]
                fake.wait_for("infer", model="a", count=3)
            service.ModelInfer(message("b"))
            assert fake.max_concurrent == 4
            assert fake.concurrency(model="a").peak == 3
            assert fake.concurrency(model="b").peak == 1
            assert fake.concurrency(protocol="http").peak == 0
            for each in calls:
                each.cancel()
            eventually(lambda: fake.concurrency().current == 0, "still in progress")
            fake.forget()
            assert fake.requests == ()
            assert fake.max_concurrent == 0

    def test_one_at_a_time_never_overlaps(self, fake):
        for _ in range(5):
            infer(fake)
        assert fake.max_concurrent == 1

    def test_waiting_ends_with_the_call_or_with_a_timeout_that_says_what_came(
        self, fake
    ):
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(fake.wait_for, "infer", model="m", count=2)
            infer(fake)
            infer(fake)
            assert waiting.result(10) == 2
        with pytest.raises(TimeoutError, match="2 infer requests came"):
            fake.wait_for("infer", count=3, timeout_seconds=0.01)

    def test_names_from_outside_get_no_counters_of_their_own(self, fake):
        for number in range(20):
            call(fake.http, "GET", f"/v2/models/unknown{number}")
        assert fake.received("model_metadata") == 20
        assert fake.received("model_metadata", model="unknown1") == 0

    def test_many_clients_at_once_are_all_served_and_counted(self, fake):
        def some(_):
            with stub(fake) as service:
                for _ in range(20):
                    service.ModelInfer(message())
            return True

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(some, range(8)))
        assert fake.received("infer") == 160
        assert counters(fake)["inference_stats"]["success"]["count"] == 160
