"""What FakeTriton says of itself and its models, and how it refuses what is not there."""

from __future__ import annotations

import http.client
import json
import socket

import pytest
from triton_clients import M, call, client, get_json

from exporter.testing import FakeModel, FakeTensor, FakeTriton


class TestDescriptions:
    MODEL = FakeModel(
        "pair",
        inputs=(
            FakeTensor("X", "INT32", (-1, 3)),
            FakeTensor("S", "BYTES", (1,), optional=True),
        ),
        outputs=(FakeTensor("Y", "BF16", (2,)),),
        versions=("1", "3"),
    )

    def test_metadata_and_configuration_tell_the_same_over_both_protocols(self):
        with FakeTriton([self.MODEL]) as fake, client(fake) as connected:
            for kind, path in (("metadata", ""), ("config", "/config")):
                over_http = get_json(fake.http, f"/v2/models/pair{path}")
                ask = getattr(connected, f"get_model_{kind}")
                over_grpc = ask("pair", as_json=True)
                over_grpc = over_grpc.get("config", over_grpc)
                assert over_http["name"] == over_grpc["name"] == "pair"
                if kind == "metadata":
                    assert over_http["versions"] == over_grpc["versions"] == ["1", "3"]
                    assert over_http["inputs"][0]["shape"] == [-1, -1, 3]
                    assert over_grpc["inputs"][0]["shape"] == ["-1", "-1", "3"]
                    assert over_http["outputs"][0]["datatype"] == "BF16"
                else:
                    assert over_http["input"][1]["optional"] is True
                    assert over_grpc["input"][1]["optional"] is True
                    assert over_http["input"][1]["data_type"] == "TYPE_STRING"
                    assert over_http["max_batch_size"] == over_grpc["max_batch_size"]
                    assert over_http["input"][0]["dims"] == [-1, 3]

    def test_a_model_without_a_batch_axis_shows_its_shape_as_it_is(self):
        model = FakeModel("flat", max_batch_size=0)
        with FakeTriton([model]) as fake:
            metadata = get_json(fake.http, "/v2/models/flat")
            assert metadata["inputs"][0]["shape"] == [4]
            assert "dynamic_batching" not in get_json(
                fake.http, "/v2/models/flat/config"
            )

    def test_the_index_lists_every_version_with_state_and_reason(self):
        broken = FakeModel("broken", ready=False, reason="Internal: no such file")
        with FakeTriton([self.MODEL, broken]) as fake, client(fake) as connected:
            status, body = call(fake.http, "POST", "/v2/repository/index")
            assert status == 200
            assert json.loads(body) == [
                {
                    "name": "broken",
                    "version": "1",
                    "state": "UNAVAILABLE",
                    "reason": "Internal: no such file",
                },
                {"name": "pair", "version": "1", "state": "READY"},
                {"name": "pair", "version": "3", "state": "READY"},
            ]
            over_grpc = connected.get_model_repository_index(as_json=True)
            assert over_grpc["models"] == json.loads(body)
            _, ready = call(
                fake.http, "POST", "/v2/repository/index", '{"ready": true}'
            )
            assert {row["name"] for row in json.loads(ready)} == {"pair"}
            assert not connected.is_server_ready()
            assert call(fake.http, "GET", "/v2/health/ready") == (400, b"")
            assert not connected.is_model_ready("broken")

    def test_readiness_of_versions_and_of_unknown_models(self):
        with FakeTriton([self.MODEL]) as fake, client(fake) as connected:
            assert connected.is_model_ready("pair")
            assert connected.is_model_ready("pair", "3")
            assert not connected.is_model_ready("pair", "2")
            assert not connected.is_model_ready("other")
            ready = "/v2/models/pair/versions/3/ready"
            assert call(fake.http, "GET", ready) == (200, b"")
            status, body = call(fake.http, "GET", "/v2/models/other/ready")
            assert (status, json.loads(body)) == (
                400,
                {"error": "Model version not ready"},
            )

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/v2/models/nope", 404),
            ("GET", "/v2/models/m/versions/7", 404),
            ("GET", "/v2/models/nope/stats", 400),
            ("GET", "/v2/models/nope/trace/setting", 400),
            ("GET", "/nope", 404),
            ("GET", "/v2/models/m/", 404),
            ("GET", "/v2/models//ready", 404),
            ("POST", "/v2", 405),
            ("GET", "/v2/models/m/infer", 405),
            ("GET", "/v2/models/%6d", 404),
        ],
    )
    def test_wrong_paths_are_refused_with_the_statuses_of_triton(
        self, fake, method, path, status
    ):
        got, body = call(fake.http, method, path)
        assert got == status
        assert json.loads(body)["error"]

    @pytest.mark.parametrize(
        "raw",
        [
            b"nonsense\r\n\r\n",
            b"GET /v2 SPDY/9\r\n\r\n",
            b"GET /v2 HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        ],
    )
    def test_bytes_that_are_not_http_get_status_400_and_the_end(self, fake, raw):
        with socket.create_connection(fake.http.split(":"), timeout=10) as connection:
            connection.sendall(raw)
            received = b"".join(iter(lambda: connection.recv(4096), b""))
        assert received.startswith(b"HTTP/1.1 400 ")

    def test_a_chunked_request_is_refused_with_411(self, fake):
        connection = http.client.HTTPConnection(fake.http, timeout=10)
        connection.request("POST", "/v2/models/m/infer", iter([b"{}"]))
        assert connection.getresponse().status == 411
        connection.close()

    def test_http_answers_many_requests_on_one_connection(self, fake):
        connection = http.client.HTTPConnection(fake.http, timeout=10)
        connection.connect()
        own = connection.sock
        for _ in range(3):
            connection.request("GET", "/v2")
            assert connection.getresponse().read()
        assert connection.sock is own
        connection.close()


class TestTraceSettings:
    def test_settings_are_read_changed_and_cleared_over_both_protocols(self, fake):
        with client(fake) as connected:
            before = connected.get_trace_settings(as_json=True)["settings"]
            assert before["trace_rate"] == {"value": ["1000"]}
            assert before["trace_mode"] == {"value": ["triton"]}
            connected.update_trace_settings("m", {"trace_rate": "7"})
            assert get_json(fake.http, "/v2/models/m/trace/setting") == {
                "trace_level": ["OFF"],
                "trace_rate": "7",
                "trace_count": "-1",
                "log_frequency": "0",
                "trace_file": "/traces/trace.json",
                "trace_mode": "triton",
            }
            assert get_json(fake.http, "/v2/trace/setting")["trace_rate"] == "1000"
            body = json.dumps({"trace_level": ["TIMESTAMPS"], "trace_rate": None})
            status, answer = call(fake.http, "POST", "/v2/models/m/trace/setting", body)
            assert status == 200
            assert json.loads(answer)["trace_level"] == ["TIMESTAMPS"]
            assert json.loads(answer)["trace_rate"] == "1000"
            changed = connected.get_trace_settings("m", as_json=True)["settings"]
            assert changed["trace_level"] == {"value": ["TIMESTAMPS"]}

    def test_what_triton_refuses_to_set_is_refused_and_nothing_changes(self, fake):
        path = "/v2/trace/setting"
        before = get_json(fake.http, path)
        for wrong, status in (
            ({"trace_file": "x", "trace_rate": "1"}, 501),
            ({"trace_rate": "often"}, 400),
            ({"trace_level": ["LOUD"]}, 400),
        ):
            assert call(fake.http, "POST", path, json.dumps(wrong))[0] == status
        assert get_json(fake.http, path) == before

    def test_without_a_trace_file_no_level_can_be_switched_on(self):
        with FakeTriton([M], trace_file="") as fake:
            status, body = call(
                fake.http, "POST", "/v2/trace/setting", '{"trace_level":["TIMESTAMPS"]}'
            )
            assert status == 400
            assert b"trace file name is not given" in body
