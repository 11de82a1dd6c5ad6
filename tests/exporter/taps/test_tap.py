"""The tap on a real socket: what it takes, what it refuses, and what it holds."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import threading
import time
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest
import structlog
from attack_connections import saying, sent
from attacks import (
    NOWHERE,
    Target,
    half_sent_bodies,
    half_sent_megabytes,
    tried,
)
from bombs import gzip_bomb
from running_taps import Crowded, HttpTap
from trace_sinks import records_of, sink
from waiting import patience, wait_until

from exporter.features.traces.trace_receiver import _ANSWER_SECONDS, TraceReceiver
from exporter.network.admission import CONNECTIONS, Admission
from exporter.taps.tap import TURN_SECONDS, Tap
from exporter.taps.tap_route import TapAnswer, TapRoute

DATA = Path(__file__).parents[2] / "data" / "traces"
JSON = (DATA / "otlp" / "triton-2.51.json").read_bytes()
PROTOBUF = (DATA / "otlp_protobuf" / "triton-2.51.bin").read_bytes()
LIMIT = 2 << 20
BUSY = TapAnswer("accepted", HTTPStatus.ACCEPTED)


class Served(HttpTap):
    """A tap with routes of a test's own."""

    def __init__(self, routes, **bounds):
        super().__init__(lambda: routes, **bounds)
        self.host, self.port = self.address

    def post(self, body, path="/v1/traces", method="POST", **headers):
        headers = {"content_type": "application/json", **headers}
        answer, text = self.send(body, path, method, **headers)
        return answer.status, text


@pytest.fixture
def served():
    traces = sink(known=(), unknown_models=20)
    receiver = TraceReceiver(
        traces,
        max_body_bytes=LIMIT,
        clock=time.monotonic,
        is_ensemble=lambda key: key[0] == "pipe",
    )
    tap = Served([receiver.route()])
    tap.sink = traces  # type: ignore[attr-defined]
    yield tap
    tap.close()


def test_json_and_protobuf_plain_and_zipped_are_taken(served):
    assert served.post(JSON) == (200, b"{}")
    zipped = gzip.compress(PROTOBUF)
    answer = served.post(
        zipped, content_type="application/x-protobuf", content_encoding="gzip"
    )
    assert answer == (200, b"")
    assert served.outcomes() == {("otlp", "accepted"): 2}
    assert records_of(served.sink, "otlp", "request") == 26
    # The second body held the same traces.
    assert records_of(served.sink, "otlp", "duplicate") == 32


REFUSED = {
    "no JSON": (b"{", {}, 400, "malformed"),
    "deep": (b"[" * 500_000, {}, 400, "malformed"),
    "too large": (b" " * (LIMIT + 1), {}, 413, "too_large"),
    "bomb": (gzip_bomb(200), {"content_encoding": "gzip"}, 413, "too_large"),
    "no gzip": (JSON, {"content_encoding": "gzip"}, 400, "malformed"),
    "cut gzip": (
        gzip.compress(JSON)[:-9],
        {"content_encoding": "gzip"},
        400,
        "malformed",
    ),
    "two gzips": (
        gzip.compress(b"{}") * 2,
        {"content_encoding": "gzip"},
        400,
        "malformed",
    ),
    "brotli": (JSON, {"content_encoding": "br"}, 415, "unsupported"),
    "text": (JSON, {"content_type": "text/plain"}, 415, "unsupported"),
    "JSON as protobuf": (
        JSON,
        {"content_type": "application/x-protobuf"},
        400,
        "malformed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_that_is_none_is_refused_and_counted(served, name):
    body, headers, status, outcome = REFUSED[name]
    answer, text = served.post(body, **headers)
    assert answer == status
    assert len(text) < 300
    assert served.outcomes() == {("otlp", outcome): 1}
    assert served.post(JSON)[0] == 200


def test_a_body_of_spans_that_is_too_large_is_logged_with_what_to_do(served):
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            served.post(b" " * (LIMIT + 1))
    assert served.outcomes() == {("otlp", "too_large"): 3}
    (line,) = [each for each in logs if each["event"] == "trace_body_too_large"]
    assert line["log_level"] == "warning"
    assert line["most_bytes"] == LIMIT
    assert "bsp_max_export_batch_size" in line["advice"]
    assert "max_body_bytes" in line["advice"]


def test_other_paths_and_methods_are_told_so(served):
    assert served.post(JSON, path="/v1/metrics")[0] == 404
    assert served.post(b"", method="GET")[0] == 405
    assert served.outcomes() == {}


def test_a_declared_length_over_the_limit_is_refused_unread(served):
    with socket.create_connection(
        (served.host, served.port), timeout=patience(10)
    ) as raw:
        raw.sendall(
            b"POST /v1/traces HTTP/1.1\r\nhost: x\r\n"
            b"content-type: application/json\r\ncontent-length: 99999999999\r\n\r\n"
        )
        assert b" 413 " in raw.recv(4096)


def slow_route(let_go):
    """A route that answers once it is let go."""

    def answer(_):
        assert let_go.wait(patience(30))
        return TapAnswer("accepted")

    return TapRoute("/slow", "test", LIMIT, answer, BUSY)


@pytest.mark.parametrize("refused", [None, TapAnswer("unwanted")])
def test_a_sender_that_never_ends_its_body_is_cut_off(refused):
    route = replace(slow_route(threading.Event()), admit=lambda _: refused)
    served = Served([route], read_seconds=0.2)
    with socket.create_connection(
        (served.host, served.port), timeout=patience(10)
    ) as raw:
        raw.sendall(b"POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc")
        assert b" 408 " in raw.recv(4096)
    served.close()
    assert served.outcomes() == {("test", "timeout"): 1}


def test_a_slow_worker_does_not_keep_the_sender_waiting():
    let_go = threading.Event()
    served = Served([slow_route(let_go)], answer_seconds=0.05)
    assert served.post(b"x", path="/slow")[0] == 202
    let_go.set()
    served.close()


def test_bodies_that_wait_are_bounded_and_what_is_over_is_refused():
    let_go = threading.Event()
    route = slow_route(let_go)
    served = Served([route], answer_seconds=0.05)
    # Three empty bodies and their place in the queue; one address may hold a half.
    entrance = served.admission.tap
    entrance.held_limit = 3 * 4096 + 4000
    answers = [served.post(b"x" * 1000, path="/slow")[0] for _ in range(3)]
    assert answers == [202, 503, 503]
    let_go.set()
    wait_until(lambda: not entrance.held)
    let_go.clear()
    assert served.post(b"x" * 1000, path="/slow")[0] == 202
    let_go.set()
    told = {("test", "accepted"): 2, ("test", "overloaded"): 2}
    wait_until(lambda: served.outcomes() == told)
    served.close()
    assert not entrance.held


def test_bodies_are_refused_while_too_much_memory_is_in_use():
    crowded = Crowded()
    route = TapRoute("/x", "test", LIMIT, lambda _: TapAnswer("accepted"), BUSY)
    served = Served([route], admission=crowded.admission)
    answers = []
    for crowded.resident in (99, 101, 99):
        answers.append(served.post(b"x", path="/x")[0])
    served.close()
    assert answers == [200, 503, 200]
    assert served.outcomes() == {("test", "accepted"): 2, ("test", "overloaded"): 1}
    assert crowded.admission.tap.refused == {"memory": 1}


def test_an_ipv6_address_of_a_tap_stands_in_brackets():
    async def address():
        tap = Tap(lambda: (slow_route(threading.Event()),), Admission().tap)
        tap.follow("::1", 0)
        found = tap.address
        await tap.stop()
        return found

    assert asyncio.run(address()).startswith("[::1]:")


def test_nothing_listens_without_a_route():
    tap = Tap(lambda: (), Admission().tap)
    tap.follow("127.0.0.1", 0)
    assert tap.address is None
    asyncio.run(tap.stop())


def test_half_sent_bodies_keep_no_sender_out(served):
    with tried(half_sent_bodies, Target(NOWHERE, tap=served.address)):
        for _ in range(30):
            assert served.post(JSON)[0] == HTTPStatus.OK
    # Each beyond the limit ended the slowest of those before.
    assert served.admission.tap.refused["crowded"] >= CONNECTIONS["tap"]


def test_bodies_of_one_address_leave_room_for_those_of_another(served):
    target = Target(NOWHERE, tap=served.address)
    with tried(half_sent_megabytes, target, times=60):
        for _ in range(30):
            assert served.post(JSON)[0] == HTTPStatus.OK
    served.wait(lambda: served.outcomes().get(("otlp", "overloaded"), 0) > 0)
    assert served.admission.tap.refused["bytes"] > 0


WHOLE = b"POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx"


def test_bodies_that_wait_to_be_parsed_keep_no_sender_out():
    """Each is complete, so its connection waits for us and not for its sender."""
    let_go = threading.Event()
    served = Served([slow_route(let_go)], answer_seconds=patience(30))
    with contextlib.ExitStack() as stack:
        stack.callback(served.close)
        stack.callback(let_go.set)
        for _ in range(CONNECTIONS["tap"]):
            stack.enter_context(saying(served.address, WHOLE, "127.0.0.2"))
        visitors = served.admission.tap.visitors
        wait_until(lambda: sum(v.idle_since() is None for v in visitors) > 120)
        assert served.post(b"", path="/none")[0] == HTTPStatus.NOT_FOUND


def test_bodies_of_one_address_delay_those_of_another_by_one():
    let_go, order = threading.Event(), []

    def answer(request):
        order.append(request.sender)
        assert let_go.wait(patience(30))
        return TapAnswer("accepted")

    route = replace(slow_route(let_go), answer=answer)
    served = Served([route], answer_seconds=0.05)
    for source in ["127.0.0.2"] * 9 + ["127.0.0.1"]:
        assert sent(served.address, "/slow", b"x", {}, source=source) == 202
    let_go.set()
    wait_until(lambda: len(order) == 10)
    served.close()
    assert order.index("127.0.0.1") <= 2


@pytest.mark.parametrize(("answer_seconds", "told"), [(0.05, 202), (None, 503)])
def test_bodies_that_waited_too_long_for_their_turn_are_dropped_and_counted(
    answer_seconds, told
):
    """A sender that waits for the verdict gets 503 and can send again."""
    assert TURN_SECONDS < _ANSWER_SECONDS, "as an exporter of traces does"
    let_go = threading.Event()
    seconds = answer_seconds or patience(30)
    served = Served([slow_route(let_go)], answer_seconds=seconds, turn_seconds=0.5)
    with saying(served.address, WHOLE), contextlib.ExitStack() as stack:
        stack.callback(served.close)
        stack.callback(let_go.set)
        wait_until(lambda: served.admission.tap.held.total() > 0)
        assert served.post(b"x", path="/slow")[0] == told
        served.wait(lambda: served.outcomes() == {("test", "overloaded"): 1})
        assert served.admission.tap.held.total() < 5000, "that of the first"
        let_go.set()
        served.wait(lambda: served.outcomes().get(("test", "accepted")) == 1)


def test_a_body_that_no_thread_can_take_holds_nothing(served, monkeypatch):
    def refused(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        assert served.post(JSON)[0] == HTTPStatus.INTERNAL_SERVER_ERROR
    assert served.admission.tap.held.total() == 0
    assert served.post(JSON)[0] == HTTPStatus.OK


def test_a_coding_is_known_in_any_case(served):
    status, _ = served.post(gzip.compress(JSON), content_encoding="GZIP")
    assert status == HTTPStatus.OK


def raw_answer(served, sent):
    """Return the answer to these bytes, or what came before the connection was closed."""
    with socket.create_connection(served.address, timeout=patience(10)) as client:
        with contextlib.suppress(OSError):
            client.sendall(sent)
        client.settimeout(patience(10))
        with contextlib.suppress(ConnectionResetError):
            return client.recv(1000)
    return b""


HEAD = b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


def chunked(body, size):
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return HEAD + b"transfer-encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"


@pytest.mark.parametrize(("headers", "accepted"), [(100, True), (1000, False)])
def test_small_headers_are_limited_in_number(served, headers, accepted):
    sent = HEAD + b"a: b\r\n" * headers + b"content-length: %d\r\n\r\n" % len(JSON)
    assert raw_answer(served, sent + JSON).startswith(b"HTTP/1.1 200") == accepted


@pytest.mark.parametrize(("size", "accepted"), [(1, False), (200, True)])
def test_a_body_in_many_small_chunks_is_refused(served, size, accepted):
    body = JSON + b" " * max(0, size * 3000 - len(JSON))
    assert (
        raw_answer(served, chunked(body, size)).startswith(b"HTTP/1.1 200") == accepted
    )
