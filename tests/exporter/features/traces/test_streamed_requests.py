"""Requests of which the answers are streamed, as Triton 2.51 traced them.

The recordings hold what `streaming_models.SCRIPTED` was asked: responses after 30, 20 and
20 ms unless the request's id says otherwise.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

from exporter.features.traces import otlp_traces, trace_records
from exporter.features.traces.trace_spans import SpanJoiner
from exporter.features.traces.traced_request import PHASES

DATA = Path(__file__).parents[3] / "data" / "traces"
FILE = (DATA / "streamed_files" / "t.json.0").read_bytes()
BODIES = [path.read_bytes() for path in sorted((DATA / "streamed_otlp").iterdir())]
SLACK = 0.020
"""The most that the recording machine added to a sleep."""


def of_files():
    parsed = trace_records.parse(FILE)
    assert (parsed.malformed, parsed.invalid) == (0, 0)
    return parsed.traces


def of_spans():
    joiner, traces = SpanJoiner(is_ensemble=lambda key: key[0] == "around"), []
    for body in BODIES:
        joined = joiner.add(otlp_traces.from_json(body).spans, 0.0)
        assert joined.invalid == 0
        traces += joined.traces
    assert joiner.waiting == 0
    return traces


@pytest.fixture(params=[of_files, of_spans], ids=["files", "spans"], scope="module")
def traces(request):
    return request.param()


@pytest.fixture
def asked(traces):
    return {trace.request_id: trace for trace in traces if not trace.child}


def test_every_request_is_read_over_both_protocols(asked):
    assert len(asked) == 20
    unsent = {"http-generate3", "http-none"}
    for missing in (lambda t: t.total_seconds is None, lambda t: t.is_unanswered):
        assert {key for key, trace in asked.items() if missing(trace)} == unsent


@pytest.mark.parametrize(
    ("request_id", "sleeps"),
    [
        ("grpc-plain", (30, 20, 20)),
        ("grpc-empty-final", (30, 20, 20, 15)),
        ("grpc-flagged", (30, 20, 20)),
        ("grpc-one", (30,)),
        ("grpc-within", (30, 20, 20)),
        ("grpc-none", (0,)),
        ("grpc-fails", (10, 10, 10)),
        ("grpc-cancelled", (10, 10)),
        ("http-plain", (30, 20, 20)),
        ("http-final", (30, 20, 20)),
        ("http-flagged", (30, 20, 20)),
        ("http-one", (30,)),
        ("http-generate", (30,)),
        ("ens-grpc", (30, 20, 20)),
        ("ens-http", (30, 20, 20)),
        ("unary-generate", (0,)),
        ("unary-http", (0,)),
    ],
)
def test_each_response_is_where_the_model_sent_it(asked, request_id, sleeps):
    found = asked[request_id].responses
    first, *gaps = (milliseconds / 1000 for milliseconds in sleeps)
    assert found.number == len(sleeps)
    assert first <= found.first_seconds <= first + 2 * SLACK
    assert len(found.gaps) == len(gaps)
    for gap, sleep in zip(found.gaps, gaps, strict=True):
        # A response that waited for the network is nearer to the one after it.
        assert sleep - SLACK <= gap <= sleep + SLACK
    assert sum(found.gaps) == pytest.approx(sum(gaps), abs=SLACK)


@pytest.mark.parametrize("request_id", ["http-generate3", "http-none"])
def test_a_request_that_was_sent_nothing_has_no_responses(asked, request_id):
    assert asked[request_id].responses is None
    assert asked[request_id].phases[-1] is None


def test_over_http_a_request_ends_with_its_final_flag(asked):
    # The last response came 15 and 25 ms earlier, and `/generate` sends with the flag.
    for request_id, seconds in (
        ("http-final", 0.085),
        ("http-one", 0.055),
        ("http-generate", 0.055),
    ):
        total = asked[request_id].total_seconds
        assert seconds <= total <= seconds + 3 * SLACK


def test_the_time_between_responses_is_the_models_own(asked):
    for request_id in ("grpc-plain", "grpc-flagged", "grpc-one", "grpc-within"):
        trace = asked[request_id]
        phases = dict(zip(PHASES, trace.phases, strict=True))
        assert phases["compute_infer"] > 0.8 * trace.total_seconds
        assert phases["network_out"] < 0.01
        assert phases["compute_output"] is None
        inside = sum(value for value in trace.phases if value is not None)
        assert inside == pytest.approx(trace.total_seconds)


def test_what_the_network_took_is_not_known_where_send_times_are_missing(asked):
    for request_id in ("http-plain", "http-generate", "unary-generate"):
        trace = asked[request_id]
        assert trace.phases[-1] is None
        inside = sum(value for value in trace.phases if value is not None)
        assert inside == pytest.approx(trace.total_seconds)
    assert asked["unary-http"].phases[-1] > 0


def test_an_ensemble_that_streams_has_no_generation_on_its_network(asked):
    assert asked["ens-grpc"].phases[-1] < 0.01
    assert asked["ens-http"].phases[-1] is None


def test_a_unary_request_is_as_it_was(asked):
    trace = asked["unary"]
    assert trace.responses.number == 1
    assert None not in trace.phases
    assert sum(trace.phases) == pytest.approx(trace.total_seconds)


def test_children_have_no_responses(traces):
    children = [trace for trace in traces if trace.child]
    assert len(children) == 2
    assert {trace.responses for trace in children} == {None}


def test_a_stream_that_lasts_minutes_is_one_request():
    spans = otlp_traces.from_json(BODIES[0]).spans[:3]
    network = next(span for span in spans if span.part == "network")
    joiner = SpanJoiner()
    # Triton ends a model's span when `execute` returns, and sends it then.
    early = joiner.add([span for span in spans if span is not network], 0.0)
    for second in range(1, 300):
        early.traces.extend(joiner.expire(float(second)).traces)
    assert early.traces == []
    (trace,) = joiner.add([network], 300.0).traces
    assert trace.total_seconds is not None


def test_a_part_that_is_sent_twice_counts_once():
    spans = otlp_traces.from_json(BODIES[0]).spans[:3]
    (whole,) = SpanJoiner().add(spans, 0.0).traces
    joiner = SpanJoiner()
    model, network, compute = (
        next(span for span in spans if span.part == part)
        for part in ("model", "network", "compute")
    )
    assert joiner.add([model, network, network], 0.0).traces == []
    (trace,) = joiner.add([compute], 0.0).traces
    assert trace == whole


def test_a_collector_in_between_may_send_ten_thousand_responses_in_protobuf():
    message = ExportTraceServiceRequest()
    span = message.resource_spans.add().scope_spans.add().spans.add()
    span.name, span.trace_id, span.span_id = "InferRequest", b"t" * 16, b"s" * 8
    for number in range(10_000):
        for name in ("GRPC_SEND_START", "GRPC_SEND_END"):
            span.events.add(name=name, time_unix_nano=10**18 + number)
    (found,) = otlp_traces.from_protobuf(message.SerializeToString()).spans
    assert len(found.marks.each("GRPC_SEND_START")) == 10_000
