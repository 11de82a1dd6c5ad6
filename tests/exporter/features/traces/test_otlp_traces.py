"""OTLP bodies: as Triton sends them, in parts, out of order, and hostile."""

from __future__ import annotations

import copy
import json
import random
import tracemalloc
from pathlib import Path

import pytest
from bombs import MILLION_EMPTY
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

from exporter.errors import TraceBodyError
from exporter.features.traces import otlp_traces
from exporter.features.traces.trace_spans import SpanJoiner

DATA = Path(__file__).parents[3] / "data" / "traces"
JSON = (DATA / "otlp" / "triton-2.51.json").read_bytes()
PROTOBUF = (DATA / "otlp_protobuf" / "triton-2.51.bin").read_bytes()
LATER = 1e6


def all_traces(spans):
    joiner = SpanJoiner(is_ensemble=lambda key: key[0] == "pipe")
    joined = joiner.add(spans, 0.0)
    late = joiner.expire(LATER)
    assert joiner.waiting == 0
    return joined, late


def order(trace):
    return (trace.begin_ns, trace.model)


def test_every_request_of_a_real_body_is_found():
    joined, late = all_traces(otlp_traces.from_json(JSON).spans)
    assert len(joined.traces) == 32
    # A request answered from the cache looks like one whose compute span is late.
    assert [(t.model, t.request_id) for t in late.traces] == [
        ("cached", "c1"),
        ("cached", "c2"),
    ]
    assert joined.invalid + joined.orphans + late.invalid + late.orphans == 0
    for trace in joined.traces:
        if not trace.child and trace.model != "pipe":
            streamed = trace.responses.number > 1
            assert (None in trace.phases) == streamed
            inside = sum(phase for phase in trace.phases if phase is not None)
            assert inside == pytest.approx(trace.total_seconds)


def test_json_and_protobuf_say_the_same():
    from_json = all_traces(otlp_traces.from_json(JSON).spans)[0].traces
    from_protobuf = all_traces(otlp_traces.from_protobuf(PROTOBUF).spans)[0].traces
    assert from_json == from_protobuf


@pytest.mark.parametrize("seed", range(20))
def test_spans_in_any_order_and_batches_are_the_same_requests(seed):
    spans = otlp_traces.from_json(JSON).spans
    joined, late = all_traces(spans)
    expected = sorted([*joined.traces, *late.traces], key=order)
    rng = random.Random(seed)  # noqa: S311 - an order, no secret
    shuffled = rng.sample(spans, len(spans))
    joiner = SpanJoiner()
    found = []
    for number, batch in enumerate(chunks(shuffled, 1 + seed % 7)):
        found += joiner.add(batch, number * 0.01).traces
    found += joiner.expire(LATER).traces
    assert sorted(found, key=order) == expected
    assert joiner.waiting == 0


def chunks(items, size):
    return [items[i : i + size] for i in range(0, len(items), size)]


def test_a_request_without_its_network_span_has_phases_but_no_total():
    spans = [s for s in otlp_traces.from_json(JSON).spans if s.part != "network"][:2]
    joined, late = all_traces(spans)
    assert joined.traces == []
    (trace,) = late.traces
    assert trace.total_seconds is None
    assert trace.phases[3] > 0
    assert trace.phases[0] is trace.phases[-1] is None


def test_spans_of_no_request_are_dropped_in_time():
    spans = otlp_traces.from_json(JSON).spans
    orphans = [s for s in spans if s.part != "model"]
    joiner = SpanJoiner(join_seconds=10)
    assert joiner.add(orphans, 0.0).orphans == 0
    assert joiner.waiting == len(orphans)
    assert joiner.add([], 9.9).orphans == 0
    assert joiner.add([], 10.0).orphans == len(orphans)
    assert joiner.waiting == 0


def edited(change):
    document = json.loads(JSON)
    span = document["resourceSpans"][0]["scopeSpans"][0]["spans"][1]
    change(span)
    return json.dumps(document).encode()


HOSTILE = {
    "no JSON": b"\x00\xff{",
    "bad UTF-8": b'{"resourceSpans":"\xff"}',
    "an array": b"[]",
    "a number": b"7",
    "null": b"null",
    "deep arrays": b'{"resourceSpans":' + b"[" * 500_000,
    "deep objects": b'{"resourceSpans":' * 200_000,
    "spans a number": b'{"resourceSpans":[{"scopeSpans":[{"spans":5}]}]}',
    "spans of strings": b'{"resourceSpans":[{"scopeSpans":[{"spans":["x"]}]}]}',
    "a huge integer": edited(
        lambda s: s["events"][0].update(timeUnixNano="9" * 100_000)
    ),
    "a large integer": edited(lambda s: s["events"][0].update(timeUnixNano=2**63)),
    "a negative time": edited(lambda s: s["events"][0].update(timeUnixNano=-1)),
    "an infinite time": edited(
        lambda s: s["events"][0].update(timeUnixNano=float("inf"))
    ),
    "events a number": edited(lambda s: s.update(events=7)),
    "an id as list": edited(lambda s: s.update(spanId=["a"])),
    "a long id": edited(lambda s: s.update(spanId="a" * 33)),
    "a parent as number": edited(lambda s: s.update(parentSpanId=7)),
    "no trace id": edited(lambda s: s.pop("traceId")),
    "a name as object": edited(
        lambda s: s["attributes"][0].update(value={"kvlistValue": {}})
    ),
    "a version as word": edited(
        lambda s: s["attributes"][1].update(value={"stringValue": "latest"})
    ),
    "a version of a thousand digits": edited(
        lambda s: s["attributes"][1].update(value={"intValue": "9" * 1000})
    ),
    "a lone surrogate": edited(
        lambda s: s["attributes"][0].update(value={"stringValue": "\ud800"})
    ),
    "an attribute as list": edited(lambda s: s.update(attributes=[[]])),
}


@pytest.mark.parametrize(
    "left_out",
    [
        {"traceId": "2" * 32, "spanId": "2" * 16},
        {"name": "GET", "events": [{"timeUnixNano": "7"}, {"name": "read"}]},
        {"name": "GET", "attributes": [{"key": "a"}, {"value": {"intValue": 1}}]},
        {"name": None, "attributes": None, "events": None, "parentSpanId": None},
    ],
)
def test_a_span_that_leaves_out_defaults_does_not_discard_the_batch(left_out):
    """In proto3's JSON, a field that is absent or null has its default."""
    document = json.loads(JSON)
    document["resourceSpans"] += [
        {"scopeSpans": [{"spans": [left_out]}, {"spans": None}]},
        {"scopeSpans": None},
    ]
    found = otlp_traces.from_json(json.dumps(document).encode())
    whole = otlp_traces.from_json(JSON)
    assert len(found.spans) == len(whole.spans)
    assert found.foreign == whole.foreign + 1


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_is_refused_in_one_short_sentence(name):
    with pytest.raises(TraceBodyError) as caught:
        otlp_traces.from_json(HOSTILE[name])
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "body",
    [b"\xff" * 100, PROTOBUF[:-1], b"\x0a" * 1000, JSON],
    ids=["noise", "cut", "nested", "JSON"],
)
def test_protobuf_that_is_none_is_refused(body):
    with pytest.raises(TraceBodyError):
        otlp_traces.from_protobuf(body)


def test_ids_of_the_wrong_length_are_refused_in_protobuf_too():
    message = ExportTraceServiceRequest()
    message.ParseFromString(PROTOBUF)
    message.resource_spans[0].scope_spans[0].spans[0].span_id = b"x" * 17
    with pytest.raises(TraceBodyError):
        otlp_traces.from_protobuf(message.SerializeToString())


def test_spans_of_others_are_passed_by_and_what_they_add_is_not_kept():
    document = json.loads(JSON)
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    other = copy.deepcopy(spans[0])
    other["name"] = "GET /"
    noisy = copy.deepcopy(spans[:3])
    noisy[1]["events"] += [
        {"name": f"mark{n}", "timeUnixNano": "1"} for n in range(1000)
    ]
    document["resourceSpans"][0]["scopeSpans"][0]["spans"] = [other, *noisy]
    found = otlp_traces.from_json(json.dumps(document).encode())
    assert found.foreign == 1
    assert len(found.spans) == 3
    assert all(span.marks.size_bytes <= 800 for span in found.spans)


def test_an_empty_export_is_an_export():
    assert otlp_traces.from_json(b"{}").spans == []
    assert otlp_traces.from_protobuf(b"").spans == []


# Little that becomes much.

READERS = {
    "application/json": otlp_traces.from_json,
    "application/x-protobuf": otlp_traces.from_protobuf,
}


@pytest.mark.parametrize("name", MILLION_EMPTY)
def test_a_million_empty_parts_are_refused_before_they_become_objects(name):
    kind, body = MILLION_EMPTY[name]
    read = READERS[kind]
    tracemalloc.start()
    try:
        with pytest.raises(TraceBodyError):
            read(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


def test_names_are_cut_to_the_longest_that_a_model_can_have():
    long = edited(
        lambda s: s["attributes"][0].update(value={"stringValue": "\U0001f600" * 999})
    )
    names = {s.identity.model for s in otlp_traces.from_json(long).spans if s.identity}
    assert max(len(name.encode()) for name in names) == 256
