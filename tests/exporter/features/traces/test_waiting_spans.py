"""Spans that wait for others: how much memory they take, and whom they displace."""

from __future__ import annotations

import json
import time
import tracemalloc
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest
from bombs import finished_spans
from trace_sinks import values

from exporter import catalogue
from exporter.features.traces import otlp_traces
from exporter.features.traces.trace_receiver import TraceReceiver
from exporter.features.traces.trace_sink import SinkSettings, TraceSink
from exporter.features.traces.trace_spans import (
    JOIN_SECONDS,
    MAX_WAITING_BYTES,
    Span,
    SpanJoiner,
)
from exporter.features.traces.traced_request import COMPLETE, Identity, Marks
from exporter.output.exposition import render
from exporter.taps.tap_route import TapRequest

DATA = Path(__file__).parents[3] / "data" / "traces"
RECORDED = json.loads((DATA / "otlp" / "triton-2.51.json").read_bytes())
SPANS = RECORDED["resourceSpans"][0]["scopeSpans"][0]["spans"]
COMPUTE, MODEL, NETWORK = SPANS[:3]
"""One request to `ident`, as Triton 2.51 reports it."""
BATCH = 100
SCALED_BYTES = 1 << 19
WAIT_SECONDS = 900.0


def request(number):
    """The spans of a request, with ids of its own."""
    trace, name = f"{number:032x}", f"{number:08x}"
    ids = {"traceId": trace}
    return {
        "compute": {
            **COMPUTE,
            **ids,
            "spanId": f"{name}0000000c",
            "parentSpanId": f"{name}0000000b",
        },
        "model": {
            **MODEL,
            **ids,
            "spanId": f"{name}0000000b",
            "parentSpanId": f"{name}0000000a",
        },
        "network": {**NETWORK, **ids, "spanId": f"{name}0000000a"},
    }


def of_model(span, model, *, child=False):
    attributes = [
        {"key": "triton.model_name", "value": {"stringValue": model}},
        {"key": "triton.model_version", "value": {"intValue": "1"}},
    ]
    if child:
        attributes.append({"key": "triton.trace_parent_id", "value": {"intValue": "7"}})
    return {**span, "attributes": attributes}


def body(spans):
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def bodies(spans):
    spans = list(spans)
    return [body(spans[at : at + BATCH]) for at in range(0, len(spans), BATCH)]


def held_bytes(made):
    """Return how much the spans of 1,500 requests hold at most, by the default limit."""
    scale = MAX_WAITING_BYTES / SCALED_BYTES
    joiner = SpanJoiner(max_bytes=SCALED_BYTES)
    tracemalloc.start()
    try:
        for number in range(0, 1_500, BATCH):
            numbers = range(number, number + BATCH)
            sent = body([one for n in numbers for one in made(n)])
            joiner.add(otlp_traces.from_json(sent).spans, 0.0)
            del sent
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return held * scale


SENT = {
    "streams": lambda n: (request(n)["compute"], request(n)["model"]),
    "models": lambda n: (request(n)["model"],),
    "children": lambda n: (of_model(request(n)["model"], "m", child=True),),
    "own requests": lambda n: (
        {
            **request(n)["model"],
            "attributes": [
                *of_model(MODEL, "m")["attributes"],
                {
                    "key": "triton.request_id",
                    "value": {"stringValue": f"tritonwatch-{n}"},
                },
            ],
        },
    ),
    "computes": lambda n: (request(n)["compute"],),
    "networks": lambda n: (request(n)["network"],),
    "answered": lambda n: (request(n)["model"], request(n)["network"]),
}


@pytest.mark.parametrize("kind", SENT)
def test_spans_that_wait_hold_less_than_ten_mebibytes(kind):
    assert held_bytes(SENT[kind]) < 10 << 20


def test_4500_requests_of_one_sender_wait_at_once():
    joiner = SpanJoiner()
    for number in range(0, 6_000, BATCH):
        sent = [
            request(n)[part]
            for n in range(number, number + BATCH)
            for part in ("compute", "model")
        ]
        joiner.add(otlp_traces.from_json(body(sent)).spans, 0.0, "10.0.0.1")
    assert 4_500 <= joiner.waiting < 6_000


def test_all_kinds_together_hold_less_than_sixteen_mebibytes():
    kinds = list(SENT.values())

    def made(number):
        return kinds[number % len(kinds)](number)

    assert 8 << 20 < held_bytes(made) < 16 << 20


def test_responses_that_a_later_span_adds_to_a_request_are_counted_in_bytes():
    """A model's span is small; its compute span, sent later, has 1,000 responses."""
    spans = otlp_traces.from_json(body([STREAM["model"]])).spans
    joiner = SpanJoiner(max_bytes=SCALED_BYTES)
    responses = Marks()
    for ns in range(1_000):
        responses.add(COMPLETE, 10**18 + ns)
    tracemalloc.start()
    try:
        for number in range(500):
            joiner.add([replace(spans[0], span_id=f"{number}", parent_id="")], 0.0)
            joiner.add([Span("compute", "", f"{number}", responses)], 0.0)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < SCALED_BYTES * 1.25


STREAM = request(1)


class Received:
    """A receiver whose server holds one model."""

    def __init__(self):
        self.now = 1000.0
        self.known = {("ident", "1")}
        self.sink = TraceSink(
            SinkSettings(300.0, 20, ("otlp",), "test"),
            known=lambda: self.known,
            wanted=lambda _: True,
            decoupled=lambda _: False,
            wall_clock=time.time,
        )
        self.receiver = TraceReceiver(
            self.sink,
            max_body_bytes=4 << 20,
            clock=lambda: self.now,
            is_ensemble=lambda _: False,
        )

    def send(self, spans, sender=""):
        for sent in bodies(spans):
            headers = {"content-type": "application/json"}
            answer = self.receiver.answer(TapRequest(sent, headers, sender=sender))
            assert answer.status == HTTPStatus.OK

    def counted(self, *outcomes):
        found = values(self.sink, catalogue.TRACE_RECORDS)
        return [found["otlp", outcome] for outcome in outcomes]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("child", [False, True])
def test_a_stream_survives_the_spans_of_models_that_the_server_does_not_hold(child):
    received = Received()
    received.send([STREAM["compute"], STREAM["model"]])
    received.send(
        of_model(
            request(number)["model"] | {"events": []}, f"m{number % 7}", child=child
        )
        for number in range(2, 40_002)
    )
    received.now += WAIT_SECONDS / 2
    received.receiver.expire()
    received.send([STREAM["network"]])
    assert received.counted("request") == [1]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", ["model", "compute", "network"])
def test_a_stream_survives_the_spans_that_another_sender_leaves_unfinished(part):
    """They name a model that the server holds, and fill the buffer many times over."""
    received = Received()
    received.send([STREAM["compute"], STREAM["model"]], "10.0.0.1")
    received.send((request(number)[part] for number in range(2, 20_002)), "10.0.0.2")
    received.now += JOIN_SECONDS / 2
    received.receiver.expire()
    received.send([STREAM["network"]], "10.0.0.1")
    assert received.counted("request") == [1]


def test_a_part_survives_the_spans_that_another_sender_leaves_unfinished():
    received = Received()
    received.send([STREAM["compute"], STREAM["network"]], "10.0.0.1")
    for part in ("compute", "network"):
        received.send(
            (request(number)[part] for number in range(2, 20_002)), "10.0.0.2"
        )
    received.send([STREAM["model"]], "10.0.0.1")
    assert received.counted("request") == [1]


def test_a_model_that_the_server_does_not_hold_waits_as_long_as_a_span_may_be_late():
    received = Received()
    received.send(
        [STREAM["compute"], of_model(STREAM["model"], "new"), STREAM["network"]]
    )
    assert received.counted("request", "partial") == [1, 0]
    second, third = request(2), request(3)
    received.send([second["compute"], of_model(second["model"], "new")])
    received.now += JOIN_SECONDS - 1
    received.send([second["network"], third["compute"]])
    assert received.counted("request", "partial") == [2, 0]
    received.send([of_model(third["model"], "new")])
    received.now += JOIN_SECONDS
    received.receiver.expire()
    assert received.counted("request", "partial") == [2, 1]


def test_spans_that_are_sent_again_without_the_networks_are_a_copy():
    received = Received()
    parts = list(STREAM.values())
    for sent in (parts, parts[:2]):
        received.send(sent)
        received.now += WAIT_SECONDS
        received.receiver.expire()
    assert received.counted("request", "partial", "duplicate") == [1, 0, 1]


def test_a_stream_of_a_model_that_was_loaded_just_now_waits_on():
    """The sidecar reads what the server holds every few seconds."""
    received = Received()
    received.send([STREAM["compute"], of_model(STREAM["model"], "new")])
    received.known.add(("new", "1"))
    for _ in range(20):
        received.now += JOIN_SECONDS
        received.receiver.expire()
    received.send([STREAM["network"]])
    assert received.counted("request", "partial") == [1, 0]


def test_models_with_names_of_four_kilobytes_keep_a_page_of_metrics_small():
    received = Received()
    for first in range(0, 200, 20):
        sent = finished_spans(first, 20, 4_000)
        headers = {"content-type": "application/json"}
        received.receiver.answer(TapRequest(sent, headers))
    assert received.counted("request", "unknown_model") == [20, 180]
    page, _ = render(received.sink.samples(received.now))
    assert page.count(b"xxxx" * 60) > 20
    assert b"x" * 257 not in page
    assert len(page) < 1 << 20


def test_spans_of_a_request_with_many_responses_are_added_as_fast_as_others():
    def seconds(responses):
        joiner, marks = SpanJoiner(), Marks()
        for number in range(responses):
            marks.add(COMPLETE, 10**18 + number)
        identity = Identity("m", "1", "r", "t", child=False)
        joiner.add([Span("model", "m", "n", marks, identity)], 0.0)
        late = Marks()
        late.add("COMPUTE_START", 10**18)
        began = time.process_time()
        joiner.add([Span("compute", f"c{n}", "m", late) for n in range(300)], 0.0)
        return time.process_time() - began

    assert min(seconds(9_000) for _ in range(3)) < 20 * max(seconds(1), 1e-4)
