"""The shipped proxies pass on and log a stream of tokens, however long, until it stalls."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import queue
import re
import threading
import time
from types import SimpleNamespace

import pytest
from monitoring import free_port
from proxies import Envoy, Nginx, envoy_binary
from requirements import require
from waiting import patience

TOKENS = 20
PAUSE_SECONDS = 0.1
# The shipped timeouts, and nginx's own of 60 s, are cut by this: a stream takes longer than the
# answer to a request may, and its first token longer than nginx's own timeouts.
FASTER = 120
FIRST_TOKEN_SECONDS = 1.0
TOKEN = b'data: {"text_output":"a"}\n\n'
BODY = b'{"stream": true}'
TRITONS = "/v2/models/llm/generate_stream"
OPENAIS = "/v1/chat/completions", "/v1/completions"


class Streaming(http.server.BaseHTTPRequestHandler):
    """Answers with tokens, one after another; a stalled model sends the first alone."""

    protocol_version = "HTTP/1.1"
    over = threading.Event()

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            self.over.wait(FIRST_TOKEN_SECONDS)
            for _ in range(TOKENS):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(TOKEN), TOKEN))
                stalled = "stalled" in self.path
                self.over.wait(patience(120) if stalled else PAUSE_SECONDS)
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        """Log nothing."""


@contextlib.contextmanager
def serving(handler):
    """The port of a server that runs meanwhile."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def upstream():
    Streaming.over.clear()
    with serving(Streaming) as port:
        yield port
        Streaming.over.set()


@pytest.fixture
def tap():
    """Its port, what it is sent, and what it was sent until the proxy gave up."""
    received, given_up = queue.Queue(), queue.Queue()

    class Silent(http.server.BaseHTTPRequestHandler):
        """Answers nothing."""

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            received.put((self.path, body))
            with contextlib.suppress(OSError):
                self.rfile.read(1)
            given_up.put((self.path, body))

    with serving(Silent) as port:
        yield SimpleNamespace(port=port, received=received, given_up=given_up)


def hastened_nginx(text):
    """Its configuration with timeouts of whole seconds, and its default of 60 s, cut."""
    return re.sub(
        r"(timeout )(\d+)s",
        lambda m: f"{m[1]}{int(m[2]) * 1000 // FASTER}ms",
        f"proxy_read_timeout 60s;\n{text}",
    )


def hastened_envoy(text):
    """The same of Envoy's, and the time for copies."""
    return re.sub(
        r"(?<!connect_)((?:timeout|duration): )(\d+)s",
        lambda m: f"{m[1]}{int(m[2]) / FASTER:g}s",
        text,
    )


@pytest.fixture(params=["envoy", "nginx"])
def proxy(request, upstream, tap, tmp_path):
    address = f"127.0.0.1:{upstream}"
    if request.param == "nginx":
        require("nginx")
        made = Nginx(tmp_path, address, f"127.0.0.1:{tap.port}", changed=hastened_nginx)
    else:
        envoy_binary()
        triton = SimpleNamespace(http=address, grpc=address)
        taps = tap.port, free_port()
        made = Envoy(tmp_path, triton, taps, changed=hastened_envoy)
    with contextlib.closing(made):
        yield made


def stream(port, path):
    """When each token came, and whether the stream ended as it should."""
    came = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(60))
    try:
        connection.request("POST", path, BODY)
        answer = connection.getresponse()
        while part := answer.read1(1 << 16):
            came += [time.monotonic()] * part.count(TOKEN)
    except (http.client.IncompleteRead, OSError):
        return came, False
    finally:
        connection.close()
    return came, answer.status == 200


def logged(proxy):
    """The paths, without their queries, and statuses of the access log."""
    proxy.close()
    lines = map(json.loads, proxy.access_log.read_text("utf-8").splitlines())
    return [(line["path"].partition("?")[0], line["status"]) for line in lines]


@pytest.mark.parametrize("path", [TRITONS, *OPENAIS])
def test_all_tokens_come_as_they_are_made_and_the_request_is_logged(proxy, path):
    came, whole = stream(proxy.port, path)
    assert (len(came), whole) == (TOKENS, True)
    # A proxy that keeps the stream back brings most of it at once.
    assert came[-1] - came[0] > TOKENS * PAUSE_SECONDS / 2
    assert logged(proxy) == [(path, 200)]


@pytest.mark.parametrize("path", [TRITONS, OPENAIS[0]])
def test_a_stream_that_stalls_is_ended(proxy, path):
    came, whole = stream(proxy.port, f"{path}?stalled")
    assert (len(came), whole) == (1, False)


@pytest.mark.parametrize("path", [TRITONS, OPENAIS[0]])
def test_copies_go_to_the_tap_and_are_given_up_where_it_does_not_answer(
    proxy, tap, path
):
    assert stream(proxy.port, path)[1]
    assert tap.received.get(timeout=patience(20)) == (path, BODY)
    # Copies that waited for ever would in the end take the place of all others.
    assert tap.given_up.get(timeout=patience(20)) == (path, BODY)
