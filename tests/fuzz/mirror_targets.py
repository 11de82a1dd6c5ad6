"""Fuzz targets of mirrored requests: each target takes any bytes and states what must always hold.

A request that is well lies before and after every input: nothing that came may cost
anything else.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from exporter.access.collector_base import Access
from exporter.access.inventory import Inventory, InventoryBoard
from exporter.access.mirror_hub import Mirrored, MirrorHub
from exporter.taps.mirroring.cloudevents import DIRECTIONS, EventSink
from exporter.taps.mirroring.intake import Intake, Rates
from exporter.taps.mirroring.mirrored_http import InferSink
from exporter.taps.mirroring.mirrored_messages import MessageSink
from exporter.taps.mirroring.openai_body import CompletionSink
from exporter.taps.tap_route import TapHead, TapRequest
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import ModelSpec

if TYPE_CHECKING:
    from exporter.taps.tap_route import TapAnswer

LIMIT = 1 << 20
PATH = "/v2/models/m/infer"
GOOD = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}'
GOOD_MESSAGE = bytes.fromhex("0a016d2a140a01781204465033321a01012a0632040000803f")
OUTCOMES = {"accepted", "own", "malformed", "unsupported", "unknown_model"}
MAX_TEXT_BYTES = 4096


class _Reader:
    def __init__(self) -> None:
        self.got: list[Mirrored] = []

    def take(self, batch: list[Mirrored]) -> None:
        self.got += batch


def _intake() -> tuple[Intake, _Reader]:
    board, hub, reader = InventoryBoard(), MirrorHub(), _Reader()
    board.publish(Inventory(models={("m", "1"): ModelSpec("m", "1", (), ())}))
    hub.subscribe(lambda _: True, reader.take)
    detached = Access.detached(GrpcClient("127.0.0.1:1"))
    access = replace(detached, board=board, mirror=hub)
    return Intake(access, Rates(1e9, 1e9), random.Random(0)), reader  # noqa: S311


INTAKE, READER = _intake()
INFER = InferSink(INTAKE, max_body_bytes=LIMIT)
EVENTS = EventSink(INTAKE, path="/", models={}, max_body_bytes=LIMIT)
COMPLETIONS = CompletionSink(INTAKE, max_body_bytes=LIMIT)
MESSAGES = MessageSink(INTAKE, max_body_bytes=LIMIT)


def check(outcome: str, text: bytes) -> None:
    """What a reader got is sane, and only what was accepted reached it."""
    assert outcome in OUTCOMES, outcome
    # An error among the answers is accepted, and reaches no reader.
    assert len(READER.got) <= (outcome == "accepted")
    assert (len(text) > 0) == (outcome in {"malformed", "unsupported"})
    assert len(text) <= MAX_TEXT_BYTES
    for request in READER.got:
        request.request_id.encode("utf-8", "replace")
        assert request.model == "m"
        assert len(request.version) <= 256
        assert bool(request.inputs) != bool(request.outputs)
        for name, array in {**request.inputs, **request.outputs}.items():
            name.encode()
            assert len(name) <= 256
            assert isinstance(array, np.ndarray)
            assert array.dtype.kind in "biufO"
            assert array.size <= LIMIT
            if array.dtype.kind == "O":
                assert all(type(item) is bytes for item in array.ravel())
    READER.got.clear()


def check_answer(answer: TapAnswer) -> None:
    check(answer.outcome, answer.body)
    good = INFER.answer(TapRequest(GOOD, {}, PATH))
    assert good.outcome == "accepted"
    assert READER.got[0].inputs["x"].tolist() == [1]
    READER.got.clear()


def fuzz_http(data: bytes) -> None:
    check_answer(INFER.answer(TapRequest(data, {}, PATH)))


def fuzz_binary(data: bytes) -> None:
    """Two bytes say how long the JSON is."""
    length, body = int.from_bytes(data[:2], "big"), data[2:]
    headers = {"inference-header-content-length": str(length)}
    check_answer(INFER.answer(TapRequest(body, headers, PATH)))


def fuzz_cloudevents(data: bytes) -> None:
    """The first byte says in which direction the rest was sent."""
    headers = {
        "ce-type": list(DIRECTIONS)[data[:1] == b"r"],
        "ce-id": "1",
        "ce-inferenceservicename": "m",
    }
    head = TapHead("/", [(k.encode(), v.encode()) for k, v in headers.items()])
    assert EVENTS.admit(head) is None
    check_answer(EVENTS.answer(TapRequest(data[1:], headers, "/")))


def fuzz_grpc(data: bytes) -> None:
    outcome, reason = MESSAGES.admit(data)
    if outcome is None:
        outcome, reason = MESSAGES.process(data)
    check(outcome, reason.encode())
    assert MESSAGES.admit(GOOD_MESSAGE) == (None, "")
    assert MESSAGES.process(GOOD_MESSAGE) == ("accepted", "")
    assert READER.got[0].inputs["x"].tolist() == [1]
    READER.got.clear()


def fuzz_completion(data: bytes) -> None:
    """The first byte says whether the rest is OpenAI's request or an answer in an event."""
    if data[:1] == b"r":
        fuzz_cloudevents(data)
    else:
        path = "/v1/chat/completions"
        check_answer(COMPLETIONS.answer(TapRequest(data[1:], {}, path)))


TARGETS = {
    "completion": fuzz_completion,
    "http": fuzz_http,
    "binary": fuzz_binary,
    "cloudevents": fuzz_cloudevents,
    "grpc": fuzz_grpc,
}
