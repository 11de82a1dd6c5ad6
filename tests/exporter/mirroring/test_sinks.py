"""The mirror collector behind a real tap: what is read, passed over and refused."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import json
import socket
import struct
import threading
import time
import zlib

import numpy as np
import pytest

from exporter import connections, tap_protocol
from exporter.collectors.mirror import MirrorSettings
from exporter.config import Config
from exporter.inventory import Inventory
from exporter.tap import Tap
from exporter.tap_route import TapHead
from exporter.triton.model import ModelSpec

REQUEST = "org.kubeflow.serving.inference.request"
RESPONSE = "org.kubeflow.serving.inference.response"
PATH = "/v2/models/m/infer"


def inventory(*names):
    return Inventory(models={(n, "1"): ModelSpec(n, "1", (), ()) for n in names})


@pytest.fixture
def access(make_access):
    return make_access("m", "other")


class Served:
    """A mirror collector behind a tap in a thread of its own, and one reader."""

    def __init__(self, access, **settings):
        self.access = access
        self.got = []
        access.mirror.subscribe(lambda model: model != "other", self.got.extend)
        settings = {
            "samples_per_second": 1e5,
            "max_samples_per_second": 1e5,
            **settings,
        }
        self.collector = MirrorSettings(**settings).build(access)
        self.tap = Tap(self.collector.routes)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(10)
        host, _, port = self.tap.address.rpartition(":")
        self.address = (host, int(port))

    def _run(self):
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self):
        self._stop = asyncio.Event()
        self.tap.follow("127.0.0.1", 0)
        self._ready.set()
        await self._stop.wait()
        await self.tap.stop()

    def close(self):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def post(self, body, path=PATH, **headers):
        connection = http.client.HTTPConnection(*self.address, timeout=10)
        with contextlib.closing(connection):
            names = {k.replace("_", "-"): v for k, v in headers.items()}
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request("POST", path, body, names)
            answer = connection.getresponse()
            return answer.status, answer.getheader("tritonwatch-outcome"), answer.read()

    def event(self, body, kind=REQUEST, service="m", **headers):
        return self.post(
            body,
            "/",
            ce_specversion="1.0",
            ce_type=kind,
            ce_id="event-1",
            ce_source="http://localhost:9081/",
            ce_inferenceservicename=service,
            **headers,
        )

    def outcomes(self):
        return {s.labels: s.value for s in self.tap.samples()}

    def samples(self):
        return {s.labels: s.value for s in self.collector.collect()}

    def wait(self, holds):
        deadline = time.monotonic() + 10
        while not holds():
            assert time.monotonic() < deadline, (self.outcomes(), self.got)
            time.sleep(0.01)


@pytest.fixture
def serve(access):
    with contextlib.ExitStack() as stack:

        def start(**settings):
            served = Served(access, **settings)
            stack.callback(served.close)
            return served

        yield start


def tensor(name="x", shape=(1, 2), datatype="FP32", data=(1.5, -2), **parameters):
    found = {"name": name, "shape": list(shape), "datatype": datatype}
    if data is not None:
        found["data"] = data
    if parameters:
        found["parameters"] = parameters
    return found


def request(*tensors, **more):
    return json.dumps({"id": "r-1", "inputs": tensors or [tensor()], **more}).encode()


def response(*tensors, **more):
    return json.dumps({"outputs": tensors or [tensor("y")], **more}).encode()


def binary(**arrays):
    """The binary tensor extension: the body and what its header says."""
    tensors, parts = [], []
    for name, array in arrays.items():
        if array.dtype == np.object_:
            data = b"".join(struct.pack("<I", len(i)) + i for i in array.ravel())
            datatype = "BYTES"
        else:
            data, datatype = array.tobytes(), "FP32"
        tensors.append(
            tensor(name, array.shape, datatype, None, binary_data_size=len(data))
        )
        parts.append(data)
    head = request(*tensors)
    return head + b"".join(parts), str(len(head))


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


def test_an_event_whose_body_lost_its_headers_is_read_all_the_same(serve):
    served = serve()
    body, _ = binary(x=np.ones((1, 4), np.float32))
    assert served.event(body)[1] == "accepted"
    assert served.event(gzip.compress(response()), RESPONSE)[1] == "accepted"
    assert served.got[0].inputs["x"].tolist() == [[1, 1, 1, 1]]
    assert served.got[1].outputs["y"].tolist() == [[1.5, -2]]


def test_an_event_in_structured_mode_is_read(serve):
    served = serve()
    event = {
        "specversion": "1.0",
        "type": RESPONSE,
        "id": "e",
        "source": "/",
        "inferenceservicename": "m",
    }
    kind = {"content_type": "application/cloudevents+json; charset=utf-8"}
    plain = json.dumps({**event, "data": json.loads(response())}).encode()
    assert served.post(plain, "/", **kind)[1] == "accepted"
    encoded = {**event, "data_base64": "eyJvdXRwdXRzIjpbXX0="}
    status, _, text = served.post(json.dumps(encoded).encode(), "/", **kind)
    assert (status, text[:20]) == (400, b"found no 'outputs'; ")
    assert served.got[0].outputs["y"].tolist() == [[1.5, -2]]


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


# What is refused.

NESTED = b'{"inputs": ' + b"[" * 100_000
HUGE = [2**40, 2**40]
REFUSED = {
    "no JSON": (b"{", {}, 400),
    "not an object": (b"[]", {}, 400),
    "deep": (NESTED, {}, 400),
    "deep data": (
        request(tensor(shape=(1,), data=json.loads("[" * 40 + "1" + "]" * 40))),
        {},
        400,
    ),
    "no inputs": (b"{}", {}, 400),
    "tensors that are none": (b'{"inputs": [1]}', {}, 400),
    "no shape": (b'{"inputs": [{"name": "x", "datatype": "FP32"}]}', {}, 400),
    "negative size": (request(tensor(shape=(-1, 2))), {}, 400),
    "a size that is true": (request(tensor(shape=(True, 2))), {}, 400),
    "huge shape": (request(tensor(shape=HUGE)), {}, 400),
    "huge shape of nothing": (request(tensor(shape=[*HUGE, 0], data=[])), {}, 400),
    "a thousand dimensions": (request(tensor(shape=[1] * 1000, data=[1])), {}, 400),
    "too few elements": (request(tensor(shape=(3,))), {}, 400),
    "ragged": (request(tensor(data=[[1], 2])), {}, 400),
    "text for a number": (request(tensor(data=["1", "2"])), {}, 400),
    "a fraction for an integer": (request(tensor(datatype="INT32")), {}, 400),
    "a number too large": (request(tensor(datatype="UINT8", data=[1, 256])), {}, 400),
    "no float": (request(tensor(data=[1, 10**400])), {}, 400),
    "an integer of ten thousand digits": (
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":['
        + b"1" * 10_000
        + b"]}]}",
        {},
        400,
    ),
    "half a character": (
        request(tensor(datatype="BYTES", data=["\ud800", "x"])),
        {},
        400,
    ),
    "unknown datatype": (request(tensor(datatype="FP8")), {}, 400),
    "twice": (request(tensor(), tensor()), {}, 400),
    "a name without end": (request(tensor(name="x" * 5000)), {}, 400),
    "a name nobody can show": (request(tensor(name="\ud800")), {}, 400),
    "more tensors than a model has": (
        request(*(tensor(str(n), (1,), data=[1]) for n in range(5000))),
        {},
        400,
    ),
    "shared memory": (
        request(tensor(data=None, shared_memory_region="r")),
        {},
        422,
    ),
    "raw binary": (b"\0" * 8, {"inference_header_content_length": "0"}, 422),
    "a header that is no length": (
        request(),
        {"inference_header_content_length": "-1"},
        400,
    ),
    "a header beyond the body": (
        request(),
        {"inference_header_content_length": "99999"},
        400,
    ),
    "a size that lies": (
        request(tensor(data=None, binary_data_size=80)) + b"\0" * 8,
        {
            "inference_header_content_length": str(
                len(request(tensor(data=None, binary_data_size=80)))
            )
        },
        400,
    ),
    "a size below zero": (request(tensor(data=None, binary_data_size=-8)), {}, 400),
    "data twice": (request(tensor(binary_data_size=8)), {}, 400),
    "a tail": (
        request() + b"tail",
        {"inference_header_content_length": str(len(request()))},
        400,
    ),
    "a text's length that lies": (
        request(tensor(datatype="BYTES", data=None, shape=(1,), binary_data_size=8))
        + b"\xff\xff\xff\x7fabcd",
        {
            "inference_header_content_length": str(
                len(
                    request(
                        tensor(
                            datatype="BYTES",
                            data=None,
                            shape=(1,),
                            binary_data_size=8,
                        )
                    )
                )
            )
        },
        400,
    ),
    "too large": (b" " * (3 << 20), {}, 413),
    "bomb": (gzip.compress(b" " * (100 << 20)), {"content_encoding": "gzip"}, 413),
    "deflate bomb": (
        zlib.compress(b" " * (100 << 20)),
        {"content_encoding": "deflate"},
        413,
    ),
    "brotli": (request(), {"content_encoding": "br"}, 415),
}
COUNTED = {400: "malformed", 413: "too_large", 415: "unsupported", 422: "unsupported"}


@pytest.fixture(scope="module")
def shared(make_access):
    """One tap for all that is refused: nothing of it may be left behind."""
    served = Served(make_access("m"))
    yield served
    served.close()


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_that_is_none_is_told_why_and_costs_nothing_else(shared, name):
    body, headers, status = REFUSED[name]
    got, before = len(shared.got), shared.outcomes()
    answer, _, text = shared.post(body, **headers)
    assert answer == status, text
    assert 5 < len(text) < 1000
    outcome = ("http", COUNTED[status])
    assert shared.outcomes()[outcome] == before.get(outcome, 0) + 1
    assert len(shared.got) == got
    assert shared.post(request())[1] == "accepted"
    assert len(shared.got) == got + 1


EVENTS = {
    "no event": (request(), {}, 400),
    "an event of another type": (request(), {"ce_type": "com.example.other"}, 422),
    "a batch": (b"[]", {"content_type": "application/cloudevents-batch+json"}, 422),
    "structured that is none": (
        b"[]",
        {"content_type": "application/cloudevents+json"},
        400,
    ),
    "structured of another type": (
        b'{"type": "x"}',
        {"content_type": "application/cloudevents+json"},
        422,
    ),
    "structured without data": (
        json.dumps({"type": REQUEST, "inferenceservicename": "m"}).encode(),
        {"content_type": "application/cloudevents+json"},
        400,
    ),
    "half a gzip": (
        gzip.compress(request())[:-9],
        {"ce_type": REQUEST, "ce_inferenceservicename": "m"},
        400,
    ),
    "a bomb in an event": (
        gzip.compress(b" " * (100 << 20)),
        {"ce_type": REQUEST, "ce_inferenceservicename": "m"},
        400,
    ),
}


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_that_is_none_is_told_why(shared, name):
    body, headers, status = EVENTS[name]
    before = shared.outcomes()
    answer, _, text = shared.post(body, "/", **headers)
    assert answer == status, text
    outcome = ("cloudevents", COUNTED[status])
    assert shared.outcomes()[outcome] == before.get(outcome, 0) + 1


# On the wire.


def test_requests_on_one_connection_are_answered_in_order_whatever_becomes_of_them(
    serve,
):
    served = serve()
    paths = ["stranger", "m", "stranger", "m", "m"]
    body = request()
    sent = b"".join(
        f"POST /v2/models/{name}/infer HTTP/1.1\r\nhost: x\r\n"
        f"content-length: {len(body)}\r\n\r\n".encode()
        + body
        for name in paths
    )
    with socket.create_connection(served.address, timeout=10) as raw:
        raw.sendall(sent)
        answers = b""
        while answers.count(b"HTTP/1.1 200 OK") < len(paths):
            part = raw.recv(65536)
            assert part, answers
            answers += part
    told = [
        line.split(b": ")[1].decode()
        for line in answers.split(b"\r\n")
        if line.startswith(b"tritonwatch-outcome")
    ]
    assert told == [
        "unknown_model",
        "accepted",
        "unknown_model",
        "accepted",
        "accepted",
    ]
    assert len(served.got) == 3


@pytest.mark.parametrize(
    "head",
    [
        "content-length: 300000\r\n",
        "transfer-encoding: chunked\r\n",
        "content-length: 300000\r\nexpect: 100-continue\r\n",
    ],
)
def test_a_long_body_that_is_passed_over_is_let_go_and_the_connection_kept(serve, head):
    served = serve()
    first = f"POST /v2/models/stranger/infer HTTP/1.1\r\nhost: x\r\n{head}\r\n"
    body = b"x" * 300_000
    if "chunked" in head:
        body = b"493e0\r\n" + body + b"\r\n0\r\n\r\n"
    with socket.create_connection(served.address, timeout=10) as raw:
        for _ in range(2):
            raw.sendall(first.encode() + body)
            answer = b""
            while b"unknown_model" not in answer:
                part = raw.recv(65536)
                assert part, answer
                answer += part
    served.wait(lambda: served.outcomes() == {("http", "unknown_model"): 2})


def test_a_connection_that_is_not_to_be_kept_is_closed_after_its_answer(serve):
    served = serve()
    with socket.create_connection(served.address, timeout=10) as raw:
        raw.sendall(b"POST /v2/models/x/infer HTTP/1.0\r\ncontent-length: 0\r\n\r\n")
        answer = b""
        while part := raw.recv(4096):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200 OK")
    # Not told, a proxy that keeps connections sends its next request into this one.
    assert b"\r\nconnection: close\r\n" in answer


PASSED_OVER = (
    b"POST /v2/models/x/infer HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\n"
)


@pytest.fixture
def hurried(monkeypatch):
    """Little time for a request, much between two of them."""
    for module in (connections, tap_protocol):
        monkeypatch.setattr(module, "HEAD_SECONDS", 0.4)


def test_a_connection_is_kept_after_a_request_that_was_passed_over(serve, hurried):
    served = serve()
    with socket.create_connection(served.address, timeout=10) as raw:
        for _ in range(2):
            raw.sendall(PASSED_OVER + b"{}")
            assert raw.recv(4096).startswith(b"HTTP/1.1 200 OK")
            time.sleep(1.0)
        raw.sendall(PASSED_OVER + b"{}")
        assert raw.recv(4096).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("part", [b"POST /v2/mod", PASSED_OVER, PASSED_OVER + b"{"])
def test_a_later_request_that_is_never_whole_is_cut_off(serve, hurried, part):
    served = serve()
    with socket.create_connection(served.address, timeout=10) as raw:
        raw.sendall(PASSED_OVER + b"{}")
        assert raw.recv(4096).startswith(b"HTTP/1.1 200 OK")
        time.sleep(0.6)
        raw.sendall(part)
        with contextlib.suppress(ConnectionResetError):
            assert raw.recv(4096) == b""


# A reader that is slow.


def test_a_reader_that_is_stuck_costs_senders_nothing_and_drops_are_counted(serve):
    """Answers wait for no reader; what has no room is refused, the rest is not lost."""
    stuck = threading.Event()
    served = serve()
    served.access.mirror.subscribe(lambda _: True, lambda _: stuck.wait(30))
    served.tap._max_held_bytes = 5 * len(request())
    started = time.monotonic()
    answers = [served.post(request())[0] for _ in range(12)]
    assert time.monotonic() - started < 25
    assert answers == [200] * 5 + [503] * 7
    # Who is passed over does not wait behind them.
    assert served.post(request(), "/v2/models/stranger/infer")[1] == "unknown_model"
    stuck.set()
    told = {("http", "accepted"): 5, ("http", "overloaded"): 7}
    served.wait(lambda: told.items() <= served.outcomes().items())
    assert len(served.got) == 5
    assert served.post(request())[1] == "accepted"


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
