"""The shipped proxies pass a stream of tokens on, however long it takes, until it stalls."""

from __future__ import annotations

import contextlib
import http.client
import http.server
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
# The shipped timeouts are cut by this: a stream takes longer than the answer to a request may.
FASTER = 120
TOKEN = b'data: {"text_output":"a"}\n\n'


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
            for _ in range(TOKENS):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(TOKEN), TOKEN))
                stalled = "stalled" in self.path
                self.over.wait(patience(120) if stalled else PAUSE_SECONDS)
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        """Log nothing."""


@pytest.fixture
def upstream():
    Streaming.over.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Streaming)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    Streaming.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def hastened(text):
    """Envoy's configuration with its timeouts, of whole seconds, cut."""
    return re.sub(
        r"(timeout: )(\d+)s", lambda m: f"{m[1]}{int(m[2]) / FASTER:g}s", text
    )


@pytest.fixture(params=["envoy", "nginx"])
def proxy(request, upstream, tmp_path):
    if request.param == "nginx":
        require("nginx")
        made = Nginx(tmp_path, upstream, f"127.0.0.1:{free_port()}")
    else:
        envoy_binary()
        triton = SimpleNamespace(http=upstream, grpc=upstream)
        taps = free_port(), free_port()
        made = Envoy(tmp_path, triton, taps, changed=hastened)
    with contextlib.closing(made):
        yield made


def stream(port, model):
    """When each token came, and whether the stream ended as it should."""
    came = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(60))
    try:
        connection.request("POST", f"/v2/models/{model}/generate_stream", b"{}")
        answer = connection.getresponse()
        while part := answer.read1(1 << 16):
            came += [time.monotonic()] * part.count(TOKEN)
    except (http.client.IncompleteRead, OSError):
        return came, False
    finally:
        connection.close()
    return came, answer.status == 200


def test_all_tokens_come_as_they_are_made(proxy):
    came, whole = stream(proxy.port, "llm")
    assert (len(came), whole) == (TOKENS, True)
    # A proxy that keeps the stream back brings most of it at once.
    assert came[-1] - came[0] > TOKENS * PAUSE_SECONDS / 2


@pytest.mark.parametrize("proxy", ["envoy"], indirect=True)
def test_a_stream_that_stalls_is_ended(proxy):
    came, whole = stream(proxy.port, "stalled")
    assert (len(came), whole) == (1, False)
