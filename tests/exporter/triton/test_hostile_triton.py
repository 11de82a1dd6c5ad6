"""What answers in place of Triton cannot hold a thread, take the memory or end a loop."""

from __future__ import annotations

import gzip
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fake_triton import Body, FakeModel, FakeTriton
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import (
    encode_metrics,
)
from tcp_peers import endless
from tritonclient.grpc import service_pb2
from waiting import patience

from exporter import errors
from exporter.access.inventory import Inventory
from exporter.catalogue import BATCH_SIZE, INFERENCES
from exporter.features.statistics.server_page import MAX_SERIES, CrossCheck, Page
from exporter.output import exposition, otlp
from exporter.output.protobuf import CONTENT_TYPE as PROTOBUF
from exporter.own_requests.answer_checks import output_fault
from exporter.own_requests.payload import MAX_BYTES, MAX_ELEMENTS, make_payload
from exporter.own_requests.reach import touched_by
from exporter.runtime.health import Meter
from exporter.samples import BucketSample, Sample
from exporter.triton import grpc as grpc_client
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient
from exporter.triton.http_tensors import decode_binary_reply
from exporter.triton.protocol_types import (
    InferRequest,
    ModelSpec,
    OutputTensor,
    TensorSpec,
)

if TYPE_CHECKING:
    from collections.abc import Generator

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PATIENCE_SECONDS = 0.3


def asked(address: str) -> bytes:
    client = HttpClient(address)
    try:
        return client.get("/metrics", timeout_seconds=PATIENCE_SECONDS)
    finally:
        client.close()


@pytest.mark.parametrize(
    ("first", "more", "every_seconds"),
    [
        (b"", b"H", 0.02),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a", 0.02),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"a", 0.02),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", 0.02),
        (CHUNKED, b"1\r\na\r\n", 0.02),
        (CHUNKED + b"0\r\n", b"X: y\r\n", 0),
    ],
    ids=["status", "header", "body", "continue", "chunks", "trailers"],
)
def test_an_answer_that_does_not_end_is_given_up_in_time(first, more, every_seconds):
    started = time.monotonic()
    with (
        endless(first, more, every_seconds) as server,
        pytest.raises(errors.DeadlineError, match=r"^(no answer in|only [0-9]+ bytes)"),
    ):
        asked(server.address)
    assert time.monotonic() - started < patience(10 * PATIENCE_SECONDS)


def test_an_answer_that_inflates_without_end_is_given_up():
    bomb = gzip.compress(gzip.compress(bytes(256 << 20), 1))
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: %d\r\n\r\n"
    )
    with (
        endless(head % len(bomb) + bomb) as server,
        pytest.raises((errors.ProtocolError, errors.DeadlineError)),
    ):
        asked(server.address)


OUTPUT = (
    b'{"outputs":[{"name":"a","datatype":"FP32","shape":[%b],'
    b'"parameters":{"binary_data_size":%b}}]}'
)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        OUTPUT % (b"1e999", b"0"),
        OUTPUT % (b"1", b"1e999"),
        OUTPUT % (b"1", b"-4"),
        b'{"outputs":null}',
        b"[]",
        b'"\xff"',
    ],
)
def test_an_answer_of_nonsense_is_a_protocol_error(body):
    with pytest.raises(errors.ProtocolError):
        decode_binary_reply({}, body)


# Signatures.


def spec(
    inputs: tuple[TensorSpec, ...] = (),
    outputs: tuple[TensorSpec, ...] = (),
    steps: tuple[tuple[str, str], ...] = (),
) -> ModelSpec:
    return ModelSpec("m", "1", inputs, outputs, 0, steps=steps)


ENDLESS_RANK = (2**62,) * 100_000


@pytest.mark.parametrize(
    "inputs",
    [
        [TensorSpec("x", "FP32", ENDLESS_RANK)],
        [TensorSpec("x", "FP32", (-1,) * 65)],
        [TensorSpec("x", "FP64", (4096, 4096))],
        [TensorSpec("x", "BYTES", (4096, 1024))],
        [TensorSpec(f"x{n}", "BOOL", (1,)) for n in range(10_000)],
    ],
    ids=["rank", "numpy's rank", "bytes", "words", "inputs"],
)
def test_a_signature_that_no_request_can_fill_is_refused_shortly(inputs):
    with pytest.raises(errors.InvalidRequestError) as refused:
        make_payload(spec(tuple(inputs)), {}, np.random.default_rng(0))
    assert f"at most {MAX_ELEMENTS} values, {MAX_BYTES} bytes" in str(refused.value)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize(
    "output",
    [
        OutputTensor("y", "FP32", ENDLESS_RANK, b""),
        OutputTensor("y", "FP32", (1,) * 100_000, b"0000"),
        OutputTensor("y", "BYTES", ENDLESS_RANK, b""),
    ],
)
def test_an_output_of_endless_rank_is_a_fault_told_shortly(output):
    declared = TensorSpec("y", output.datatype, (-1,) * len(output.shape))
    fault = output_fault(spec(outputs=(declared,)), [output], frozenset())
    assert fault is not None
    assert len(fault) < 600


def test_an_ensemble_that_names_itself_is_followed_a_bounded_way():
    ensemble = spec(steps=(("m", "1"),) * 10)
    inventory = Inventory(models={("m", "1"): ensemble})
    request = InferRequest("m", "1", "", {}, {}, {})
    touched = touched_by(ensemble, inventory, request, {"m": {"m": 10}})
    assert 10 < len(touched) < 5_000


# gRPC.


@pytest.fixture(scope="module")
def fake() -> Generator[FakeTriton]:
    with FakeTriton([FakeModel("m")]) as server:
        yield server


@pytest.fixture
def client(fake) -> Generator[GrpcClient]:
    asking = GrpcClient(fake.grpc)
    yield asking
    asking.close()
    fake.behave()


@pytest.mark.parametrize(
    ("operation", "entry", "ask"),
    [
        ("statistics", b"\x0a\x00", lambda c: c.statistics(timeout_seconds=5)),
        (
            "repository_index",
            b"\x0a\x00",
            lambda c: c.repository_index(timeout_seconds=5),
        ),
        (
            "model_metadata",
            b"\x22\x00",
            lambda c: c.model_spec("m", "1", timeout_seconds=5),
        ),
    ],
    ids=["statistics", "index", "metadata"],
)
def test_an_answer_of_countless_entries_is_refused(fake, client, operation, entry, ask):
    fake.on(operation, protocol="grpc").reply(Body(entry * 100_000))
    with pytest.raises(errors.ProtocolError, match=r"found 100000 .*; the maximum is"):
        ask(client)


def test_an_answer_that_would_be_gigabytes_when_parsed_is_not_parsed(fake, client):
    fake.on("statistics", protocol="grpc").reply(Body(b"\x0a\x00" * (5 << 20)))
    with pytest.raises(errors.ProtocolError, match="deserializing"):
        client.statistics(timeout_seconds=5)


def test_statistics_of_countless_batch_sizes_are_refused(fake, client, monkeypatch):
    monkeypatch.setattr(grpc_client, "MAX_BATCHES", 100)
    reply = service_pb2.ModelStatisticsResponse()
    entry = reply.model_stats.add(name="m", version="1")
    for size in range(101):
        entry.batch_stats.add(batch_size=size)
    fake.on("statistics", protocol="grpc").reply(Body(reply.SerializeToString()))
    with pytest.raises(errors.ProtocolError, match="101 batch sizes"):
        client.statistics(timeout_seconds=5)


def test_what_a_server_says_is_kept_in_its_beginning_only():
    assert len(str(errors.ModelError("x" * 100_000))) == 1_000


def test_a_model_whose_name_would_fill_the_page_is_left_out(fake, client):
    reply = service_pb2.RepositoryIndexResponse()
    reply.models.add(name="x" * 100_000, version="1", state="READY")
    reply.models.add(name="m", version="1", state="READY", reason="y" * 100_000)
    fake.on("repository_index").reply(Body(reply.SerializeToString()))
    (entry,) = client.repository_index(timeout_seconds=5)
    assert entry.name == "m"
    assert len(entry.reason) == 1_000


# Counters.

LARGEST = 2**64 - 1


def test_counters_near_their_end_cost_no_page_and_no_push():
    counts = (LARGEST,) * len(BATCH_SIZE.buckets)
    samples = [
        BucketSample(BATCH_SIZE, counts, 4 * LARGEST, 1.0, ("m", "1")),
        Sample(INFERENCES, LARGEST, ("m", "1")),
    ]
    for accept in ("", "application/openmetrics-text", PROTOBUF):
        body, _ = exposition.render(samples, accept=accept)
        assert b"triton_inferences" in body
    data = otlp.metrics_data(samples, otlp.resource({}, "x"), 0, 1)
    assert encode_metrics(data).resource_metrics


def test_of_a_page_of_countless_series_no_more_are_read_and_the_rest_is_counted():
    line = b'nv_inference_count{model="m%d",version="1"} 1\n'
    page = read_page(b"".join(line % model for model in range(MAX_SERIES + 3)))
    assert len(page.counters) == MAX_SERIES
    assert page.refused == {"too_many": 3}
    twice = read_page(line % 1 * 4)
    assert twice.counters == {(("m1", "1"), "inferences"): 1}
    assert twice.refused == {"duplicate": 3}


def test_what_is_not_compared_is_not_parsed():
    garbage = b"{]garbage\xff\n" * 10
    line = b'nv_inference_count{model="a\rb\xe2\x80\xa8",version="1"} 1\n'
    page = read_page(garbage + line)
    assert page.counters == {(("a\rb\u2028", "1"), "inferences"): 1}


def read_page(page: bytes) -> Page | None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
    with endless(head % len(page) + page) as server:
        client = HttpClient(server.address)
        try:
            return CrossCheck(client, 5).read()
        finally:
            client.close()


# The log.


def test_a_collector_that_breaks_at_every_run_is_told_once(capsys):
    meter = Meter("c", time.monotonic, time.time)
    for _ in range(100):
        meter.broken(0.1, ValueError("the same again"))
    meter.broken(0.1, ValueError("another"))
    said = capsys.readouterr().out
    assert said.count("collector_broken") == 2
    assert meter.statistics.failure == "ValueError: another"
