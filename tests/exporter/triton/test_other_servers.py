"""Servers of the KServe v2 protocol that are no Triton: tensors over HTTP."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
from fake_triton import INTERNAL, FakeModel, FakeTensor, FakeTriton, Status
from structlog.testing import capture_logs
from surfaces import serving
from tcp_peers import endless

from exporter.errors import ModelError, ProtocolError, UnavailableError
from exporter.triton.http import HttpClient
from exporter.triton.http_tensors import decode_json_reply, json_request
from exporter.triton.protocol_types import InferRequest
from exporter.triton.tensors import DATATYPES, array_dtype, decode


def asked(datatype="FP32", values=(1.0, 2.0)):
    array = np.array([values], dtype=array_dtype(datatype))
    return InferRequest("m", "1", "one", {"INPUT0": array}, {"INPUT0": datatype})


@pytest.fixture
def other():
    models = [FakeModel("m", inputs=(FakeTensor("INPUT0", "FP32", (2,)),))]
    with FakeTriton(models, name="mlserver", version="1.7.1") as fake:
        yield fake


def test_a_server_without_binary_tensors_is_asked_in_json(other):
    client = HttpClient(other.http)
    try:
        for _ in range(3):
            reply = client.infer(asked(), timeout_seconds=5)
            assert [decode(tensor).dtype for tensor in reply.outputs] == [np.float32]
    finally:
        client.close()
    assert other.received("server_metadata", protocol="http") == 1


def test_triton_keeps_its_binary_tensors_when_a_model_fails():
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer").reply(INTERNAL)
        client = HttpClient(fake.http)
        try:
            for _ in range(3):
                with pytest.raises(ModelError):
                    client.infer(asked(), timeout_seconds=5)
        finally:
            client.close()
        assert fake.received("infer") <= 3
        assert fake.received("server_metadata", protocol="http") == 1


PAGE = b"<html><h1>502 Bad Gateway</h1></html>"


def test_a_proxy_without_a_server_behind_it_is_no_error_of_a_model():
    head = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: %d\r\n\r\n"
    with endless(head % len(PAGE) + PAGE) as proxy:
        client = HttpClient(proxy.address)
        try:
            with pytest.raises(UnavailableError, match="502 Bad Gateway"):
                client.infer(asked(), timeout_seconds=5)
        finally:
            client.close()


async def test_its_models_serve(other):
    async with serving(other) as served:
        await served.until(
            lambda a: (
                a.values("triton_model_serving") == [1]
                and a.values("triton_probe_success", protocol="http") == [1]
            )
        )
        status = json.loads((await served.ask("/api/v1/status")).text)
    assert status["server"]["product"] == "mlserver"


async def failures(served):
    """Return the error of each collector that failed."""
    status = json.loads((await served.ask("/api/v1/status")).text)
    return {c["collector"]: c["failure"] for c in status["collectors"]}


SUCCESS = "tritonwatch_collector_success"


async def test_statistics_that_another_server_does_not_have_are_absent_and_no_failure(
    other,
):
    with capture_logs() as logged:
        async with serving(other) as served:
            await asyncio.to_thread(other.wait_for, "statistics", count=3)
            answer = await served.until(
                lambda a: (
                    a.values(SUCCESS, collector="statistics") == [1]
                    and a.values("triton_model_serving") == [1]
                )
            )
            assert set((await failures(served)).values()) == {""}
    assert not answer.values("triton_requests_total")
    assert [e["event"] for e in logged if e["log_level"] != "info"] == []
    [absent] = [e for e in logged if e["event"] == "statistics_not_offered"]
    assert absent["server"] == "mlserver"


async def test_a_triton_without_statistics_is_a_failure():
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("statistics").reply(Status("UNIMPLEMENTED", 404, "no such call"))
        async with serving(fake) as served:
            await served.until(
                lambda a: (
                    a.values(SUCCESS, collector="server") == [1]
                    and a.values(SUCCESS, collector="statistics") == [0]
                )
            )
            assert "UNIMPLEMENTED" in (await failures(served))["statistics"]


VALUES = {"BOOL": [True, False], "BYTES": ["a", "ü"], "FP16": [0.5, -1.5]}


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_goes_there_and_back(datatype):
    values = VALUES.get(datatype, [1, 2])
    body = json.loads(json_request(asked(datatype, values)))
    [sent] = body["inputs"]
    assert sent == {
        "name": "INPUT0",
        "datatype": datatype,
        "shape": [1, 2],
        "data": values,
    }
    [output] = decode_json_reply(json.dumps({"outputs": [sent]}).encode())
    found = decode(output).ravel().tolist()
    assert found == [v.encode() if isinstance(v, str) else v for v in values]  # type: ignore[attr-defined]


def test_without_any_content_triton_states_no_length_of_the_json_before_it():
    entry = {"name": "o", "datatype": "FP32", "shape": [0]}
    body = json.dumps({"outputs": [{**entry, "parameters": {"binary_data_size": 0}}]})
    [output] = decode_json_reply(body.encode())
    assert (output.shape, output.data) == ((0,), b"")


@pytest.mark.parametrize(
    "output",
    [
        {},
        {
            "name": "o",
            "datatype": "FP32",
            "shape": [1],
            "parameters": {"binary_data_size": 4},
        },
        {"name": "o", "datatype": "FP32", "shape": [1]},
        {"name": "o", "datatype": "FP32", "shape": [1], "data": ["x"]},
        {"name": "o", "datatype": "UINT8", "shape": [1], "data": [256]},
        {"name": "o", "datatype": "BYTES", "shape": [1], "data": [1 << 40]},
        {"name": "o", "datatype": "STRING", "shape": [1], "data": ["x"]},
        {"name": "o", "datatype": "FP32", "shape": "x", "data": [1]},
        {"name": "o", "datatype": "FP32", "shape": [2], "data": [[1], [1, 2]]},
    ],
)
def test_an_answer_that_is_none_is_an_error_of_the_protocol(output):
    with pytest.raises(ProtocolError):
        decode_json_reply(json.dumps({"outputs": [output]}).encode())


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"outputs": 1}', b"[" * 100_000])
def test_a_body_that_is_no_answer_is_an_error_of_the_protocol(body):
    with pytest.raises(ProtocolError):
        decode_json_reply(body)
