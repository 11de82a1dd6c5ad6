"""Inputs and outputs in trace files: what survives, and what is refused."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path

import numpy as np
import pytest
import structlog
from accesses import access_to

from exporter.access.inventory import Inventory, InventoryBoard
from exporter.errors import MirrorBodyError
from exporter.features.traces import trace_records
from exporter.features.traces.trace_mirroring import TracedMirror
from exporter.features.traces.trace_tensors import TensorText, arrays
from exporter.taps.mirroring.intake import Intake, Rates
from exporter.triton.grpc import GrpcClient
from exporter.triton.model import ModelSpec

FOLDER = Path(__file__).parents[3] / "data" / "traces" / "tensors"
# Triton 2.51: eight requests of 13 datatypes, one of a batch of three; in one a text
# pretends to be the next record.
RECORDED = [path.read_bytes() for path in sorted(FOLDER.iterdir())]


@pytest.fixture
def access():
    board = InventoryBoard()
    models = {("types", "1"): ModelSpec("types", "1", (), ())}
    board.publish(Inventory(models=models))
    client = GrpcClient("127.0.0.1:1")
    yield access_to(client, board=board)
    client.close()


def mirror(access, rate=1e5):
    rng = random.Random(0)  # noqa: S311 - a price, no secret
    return TracedMirror(Intake(access, Rates(rate, rate), rng))


def counted(traced):
    return {(s.spec.name.split("_")[2], *s.labels): s.value for s in traced.samples()}


def test_numbers_survive_with_six_digits(access):
    got = []
    access.mirror.subscribe(lambda _: True, got.extend)
    traced = mirror(access)
    for data in RECORDED:
        traced.add(trace_records.parse(data, tensors=True))
    first = got[0]
    assert (first.source, first.model, first.version, first.request_id) == (
        "traces",
        "types",
        "1",
        "req-0",
    )
    assert {n: (a.dtype.str, a.shape) for n, a in first.inputs.items()} == {
        "bool": ("|b1", (1, 2)),
        "uint16": ("<u2", (1, 2)),
        "uint32": ("<u4", (1, 2)),
        "uint64": ("<u8", (1, 2)),
        "int16": ("<i2", (1, 2)),
        "int32": ("<i4", (1, 2)),
        "int64": ("<i8", (1, 2)),
        "fp32": ("<f4", (1, 2)),
        "fp64": ("<f8", (1, 2)),
    }
    assert first.inputs["uint64"].tolist() == [[2**64 - 1, 0]]
    assert first.inputs["int64"].tolist() == [[2**63 - 1, -(2**63)]]
    assert first.inputs["bool"].tolist() == [[True, False]]
    assert first.inputs["fp32"].tolist()[0] == pytest.approx([1 / 3, -2e-30], rel=1e-5)
    assert first.outputs["y"].tolist()[0] == pytest.approx([2 / 3, -4e-30], rel=1e-5)
    assert np.isnan(got[1].inputs["fp32"][0, 0])
    assert got[1].inputs["fp32"][0, 1] == math.inf
    assert got[-1].inputs["fp32"].shape == (3, 2)


def test_what_does_not_survive_is_refused_once_in_the_log_and_counted(access):
    access.mirror.subscribe(lambda _: True, lambda _: None)
    traced = mirror(access)
    with structlog.testing.capture_logs() as logs:
        for data in RECORDED:
            traced.add(trace_records.parse(data, tensors=True))
    told = {(e["event"], e["datatype"], e["reason"]) for e in logs}
    assert len(logs) == len(told)
    assert told == {
        ("trace_tensors_refused", "FP16", "empty"),
        ("trace_tensors_refused", "INT8", "characters"),
        ("trace_tensors_refused", "UINT8", "characters"),
        ("trace_tensors_refused", "BYTES", "unescaped"),
    }
    counts = counted(traced)
    assert counts["tensors", "FP16", "empty"] == 9
    assert counts["tensors", "BYTES", "unescaped"] == 9
    # One of the nine was our own.
    assert counts["requests", "traces", "accepted"] == 8
    assert counts["requests", "traces", "own"] == 1
    assert counts["samples", "types", "traces", "request"] == 8
    assert counts["samples", "types", "traces", "response"] == 8


def test_what_nobody_looks_at_is_not_read(access):
    traced = mirror(access)
    traced.add(trace_records.parse(RECORDED[0], tensors=True))
    assert counted(traced)["requests", "traces", "unwanted"] == 4


def test_samples_are_taken_of_many(access):
    access.mirror.subscribe(lambda _: True, lambda _: None)
    traced = mirror(access, rate=1e-3)
    for _ in range(20):
        traced.add(trace_records.parse(RECORDED[0], tensors=True))
    counts = counted(traced)
    assert 1 <= counts["requests", "traces", "accepted"] < 40
    assert counts["requests", "traces", "sampled_out"] > 40


def test_tensors_are_not_looked_for_unless_asked():
    parsed = trace_records.parse(RECORDED[0])
    assert parsed.inferences == []
    assert not parsed.refused
    assert len(parsed.traces) == 4


@pytest.mark.parametrize(
    "text",
    [
        TensorText(b"x", "FP32", b"3", b"1,2"),
        TensorText(b"x", "FP32", b"2", b"1,e"),
        TensorText(b"x", "FP32", b"1,,1", b"1"),
        TensorText(b"x", "INT32", b"1", b"1.5"),
        TensorText(b"x", "UINT16", b"1", b"65536"),
        TensorText(b"x", "INT64", b"1", b"9" * 5000),
        TensorText(b"x", "FP32", b"1099511627777,0", b""),
        TensorText(b"x", "FP32", b",".join([b"1"] * 40), b"1"),
    ],
)
def test_a_tensor_that_is_none_is_an_error(text):
    with pytest.raises(MirrorBodyError):
        arrays([text])


def test_a_tensor_that_says_two_things_is_an_error():
    once = TensorText(b"x", "FP32", b"1", b"nan")
    assert np.isnan(arrays([once, once])["x"][0])
    with pytest.raises(MirrorBodyError, match="twice"):
        arrays([once, TensorText(b"x", "FP32", b"1", b"2")])


def test_reading_tensors_takes_time_in_proportion_to_the_file():
    # What fits the beginning of a record a million times over, and never its end.
    start = b'{"id":1,"activity":"TENSOR_QUEUE_INPUT","tensor":{"name":"x","data":"'
    small, large = (start * n + b"1," * 20 * n for n in (2_000, 8_000))

    def seconds(data):
        began = time.process_time()
        trace_records.parse(data, tensors=True)
        return time.process_time() - began

    seconds(small)
    ratio = min(seconds(large) for _ in range(3)) / min(
        seconds(small) for _ in range(3)
    )
    assert ratio < 16
