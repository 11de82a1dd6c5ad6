"""What a mirror collector behind a real tap reads, and what it passes over unread."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import pytest
from mirror_bodies import RESPONSE, binary, request, response, tensor
from running_taps import REQUEST, inventory
from waiting import wait_until

from exporter import catalogue
from exporter.config.configuration import Config
from exporter.taps.tap_route import TapHead

# What arrives.


def test_a_json_request_reaches_the_reader_as_arrays(serve):
    served = serve()
    body = request(
        tensor("a", (2, 2), data=[[1, 2.5], [float("nan"), 1e39]]),
        tensor("b", (2,), "INT64", [2**62, -1]),
        tensor("c", (1, 2), "BYTES", ["é", ""]),
        tensor("d", (3,), "BOOL", [True, False, True]),
        parameters={"priority": 2, "nested": {"no": 1}, "who": "me"},
        outputs=[{"name": "y"}],
    )
    assert served.post(body)[:2] == (200, "accepted")
    (got,) = served.got
    assert (got.source, got.model, got.version, got.request_id) == (
        "http",
        "m",
        "",
        "r-1",
    )
    assert got.inputs["a"].dtype == np.float32
    assert got.inputs["a"].shape == (2, 2)
    np.testing.assert_array_equal(
        got.inputs["a"], np.array([[1, 2.5], [np.nan, np.inf]], np.float32)
    )
    assert got.inputs["b"].tolist() == [2**62, -1]
    assert got.inputs["c"].tolist() == [["é".encode(), b""]]
    assert got.inputs["d"].tolist() == [True, False, True]
    assert got.outputs == {}
    assert got.parameters == {"priority": 2, "who": "me"}
    assert served.outcomes() == {("http", "accepted"): 1}
    assert served.samples() == {("m", "http", "request"): 1}


@pytest.mark.parametrize("encoding", [None, "gzip", "deflate"])
def test_binary_tensors_arrive_plain_and_compressed(serve, encoding):
    served = serve()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    text = np.array([b"one", b"\x00\xff"], object)
    body, head = binary(x=x, text=text)
    pack = {None: bytes, "gzip": gzip.compress, "deflate": zlib.compress}[encoding]
    headers = {"content_encoding": encoding} if encoding else {}
    answer = served.post(
        pack(body),
        "/v2/models/m/versions/3/infer",
        inference_header_content_length=head,
        **headers,
    )
    assert answer[:2] == (200, "accepted")
    (got,) = served.got
    assert got.version == "3"
    np.testing.assert_array_equal(got.inputs["x"], x)
    assert got.inputs["text"].tolist() == [b"one", b"\x00\xff"]


def test_events_of_requests_and_responses_arrive_as_kserve_sends_them(serve):
    served = serve()
    assert served.event(request(id=""))[:2] == (200, "accepted")
    body = response(model_name="m", model_version="7", id="r-9")
    assert served.event(body, RESPONSE)[:2] == (200, "accepted")
    asked, answered = served.got
    assert (asked.source, asked.model, asked.request_id) == (
        "cloudevents",
        "m",
        "event-1",
    )
    assert asked.inputs["x"].tolist() == [[1.5, -2]]
    assert (answered.version, answered.request_id) == ("7", "r-9")
    assert answered.inputs == {}
    assert answered.outputs["y"].tolist() == [[1.5, -2]]
    assert served.samples() == {
        ("m", "cloudevents", "request"): 1,
        ("m", "cloudevents", "response"): 1,
    }


def test_an_error_among_the_answers_is_a_failure_that_a_client_saw(serve):
    served = serve()

    def seen():
        return {
            sample.labels: sample.value
            for sample in served.collector.collect()
            if sample.spec is catalogue.CLIENT_REQUESTS and sample.value
        }

    for _ in range(2):
        assert served.event(response(), RESPONSE)[1] == "accepted"
    # KServe's logger sends no errors: successes alone prove nothing.
    assert seen() == {}
    for _ in range(3):
        assert served.event(b'{"error": "out of memory"}', RESPONSE)[1] == "accepted"
    assert served.event(b'{"error": "a request?"}')[0] == 400
    assert seen() == {
        ("m", "1", "success", "mirror"): 2,
        ("m", "1", "failure", "mirror"): 3,
    }
    assert len(served.got) == 2


def test_an_event_whose_body_lost_its_headers_is_read_all_the_same(serve):
    served = serve()
    body, _ = binary(x=np.ones((1, 4), np.float32))
    assert served.event(body)[1] == "accepted"
    assert served.event(gzip.compress(response()), RESPONSE)[1] == "accepted"
    assert served.got[0].inputs["x"].tolist() == [[1, 1, 1, 1]]
    assert served.got[1].outputs["y"].tolist() == [[1.5, -2]]


def test_a_services_model_is_mapped_or_the_only_one_there_is(serve, access):
    served = serve(cloudevents={"path": "/log", "models": {"front": "m"}})
    headers = {"ce_type": REQUEST, "ce_id": "1"}
    sent = [
        served.post(request(), "/log", ce_inferenceservicename=name, **headers)[1]
        for name in ("front", "back")
    ]
    assert sent == ["accepted", "unknown_model"]
    access.board.publish(inventory("m"))
    assert (
        served.post(request(), "/log", ce_inferenceservicename="back", **headers)[1]
        == "accepted"
    )
    # A response says whose it is.
    access.board.publish(inventory("m", "front"))
    served.post(
        response(model_name="m"),
        "/log",
        ce_inferenceservicename="front",
        ce_type=RESPONSE,
    )
    assert [got.model for got in served.got] == ["m", "m", "m"]


# What is passed over, before it is read.


def test_what_nobody_looks_at_is_never_parsed(serve, access):
    served = serve()
    access.board.publish(inventory("m", "other", "secret_1"))
    outcomes = {
        path: served.post(b"no JSON", f"/v2/models/{path}/infer")[:2]
        for path in ("other", "secret_1", "stranger")
    }
    assert outcomes == {
        "other": (200, "unwanted"),
        "secret_1": (200, "unwanted"),
        "stranger": (200, "unknown_model"),
    }
    assert served.got == []
    access.mirror.subscribe(lambda model: model == "other", lambda _: None)
    wait_until(
        lambda: served.post(request(), "/v2/models/other/infer")[1] == "accepted"
    )


def test_a_million_names_leave_nothing_behind(serve):
    served = serve()
    admit = served.collector.routes()[0].admit
    for number in range(100_000):
        head = TapHead(f"/v2/models/model-{number}/infer", ())
        assert admit(head).outcome == "unknown_model"
    intake = served.collector._intake
    assert (intake._wanted, intake._sampler._buckets) == ({}, {})


def test_each_model_and_all_together_are_sampled(serve, access):
    access.board.publish(inventory("m", "n", "k"))
    served = serve(
        samples_per_second=1e-3,
        max_samples_per_second=1e5,
        overrides={"n": {"samples_per_second": 1e5}},
    )
    for model in ("m", "n"):
        for _ in range(60):
            served.post(request(), f"/v2/models/{model}/infer")
    counted = served.samples()
    # A full bucket holds eight samples' worth.
    assert 1 <= counted["m", "http", "request"] < 40
    assert counted["n", "http", "request"] == 60
    total = sum(served.outcomes().values())
    assert total == 120
    assert served.outcomes()["http", "sampled_out"] == 120 - sum(counted.values())


def test_our_own_requests_are_left_out(serve):
    served = serve()
    assert served.post(request(id="tritonwatch-probe-1"))[1] == "own"
    assert served.event(request(id="tritonwatch-golden-2"))[1] == "own"
    assert served.got == []
    assert served.outcomes() == {("http", "own"): 1, ("cloudevents", "own"): 1}


# The configuration.


@pytest.mark.parametrize(
    ("more", "listens"),
    [
        ({}, False),
        ({"drift": [{"models": "m", "learn": {"rows": 500}}]}, True),
        ({"collectors": [{"kind": "mirror", "http": False}]}, True),
    ],
)
def test_what_looks_at_data_brings_the_tap_with_it(more, listens):
    kinds = [c.kind for c in Config.model_validate(more).all_collectors()]
    assert ("mirror" in kinds) == listens
