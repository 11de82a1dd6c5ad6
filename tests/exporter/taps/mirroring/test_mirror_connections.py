"""The mirror's connections: kept, closed, cut off, and held up by a slow reader."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest
from mirror_bodies import request
from waiting import patience

from exporter.network import connections

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
    with socket.create_connection(served.address, timeout=patience(10)) as raw:
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
    with socket.create_connection(served.address, timeout=patience(10)) as raw:
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
    with socket.create_connection(served.address, timeout=patience(10)) as raw:
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


@pytest.mark.parametrize(("ahead", "is_answered"), [(8, True), (9, False)])
def test_eight_requests_that_are_passed_over_may_be_sent_ahead(
    serve, ahead, is_answered
):
    served, answers = serve(), b""
    with (
        socket.create_connection(served.address, timeout=patience(10)) as raw,
        contextlib.suppress(ConnectionResetError),
    ):
        raw.sendall((PASSED_OVER + b"{}") * (1 + ahead))
        while answers.count(b"200 OK") < 1 + ahead and (part := raw.recv(65536)):
            answers += part
    assert (answers.count(b"200 OK") == 1 + ahead) is is_answered


@pytest.fixture
def hurried(monkeypatch):
    """Little time for a request, much between two of them."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.4)


def test_a_connection_is_kept_after_a_request_that_was_passed_over(serve, hurried):
    served = serve()
    with socket.create_connection(served.address, timeout=patience(10)) as raw:
        for _ in range(2):
            raw.sendall(PASSED_OVER + b"{}")
            assert raw.recv(4096).startswith(b"HTTP/1.1 200 OK")
            time.sleep(1.0)
        raw.sendall(PASSED_OVER + b"{}")
        assert raw.recv(4096).startswith(b"HTTP/1.1 200 OK")


def test_a_later_request_whose_head_is_never_whole_is_cut_off(serve, hurried):
    served = serve()
    with socket.create_connection(served.address, timeout=patience(10)) as raw:
        raw.sendall(PASSED_OVER + b"{}")
        assert raw.recv(4096).startswith(b"HTTP/1.1 200 OK")
        time.sleep(0.6)
        raw.sendall(b"POST /v2/mod")
        with contextlib.suppress(ConnectionResetError):
            assert raw.recv(4096) == b""


# A reader that is slow.


def test_a_reader_that_is_stuck_costs_senders_nothing_and_drops_are_counted(serve):
    """Answers wait for no reader; what has no room is refused, the rest is not lost."""
    stuck = threading.Event()
    served = serve(patient=False)
    served.access.mirror.subscribe(lambda _: True, lambda _: stuck.wait(patience(30)))
    # Of which one address may hold a half: five bodies with headers and places in the queue.
    served.admission.tap.held_limit = 11 * (4096 + len(request()))
    started = time.monotonic()
    answers = [served.post(request())[0] for _ in range(12)]
    assert time.monotonic() - started < patience(25)
    assert answers == [200] * 5 + [503] * 7
    # Who is passed over does not wait behind them.
    assert served.post(request(), "/v2/models/stranger/infer")[1] == "unknown_model"
    stuck.set()
    told = {("http", "accepted"): 5, ("http", "overloaded"): 7}
    served.wait(lambda: told.items() <= served.outcomes().items())
    assert len(served.got) == 5
    assert served.post(request())[1] == "accepted"
