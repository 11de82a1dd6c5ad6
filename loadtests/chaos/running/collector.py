"""A minimal OpenTelemetry collector: accepts every push over HTTP and discards it.

A process of its own, so that a fault can stop it: python -m ... HOST PORT
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

_MOST_BYTES: Final = 64 << 20
_IDLE_SECONDS: Final = 60.0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/-/ready" else 404)

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if not length.isdigit() or int(length) > _MOST_BYTES:
            self.close_connection = True
            self._answer(411 if not length.isdigit() else 413)
            return
        self.rfile.read(int(length))
        # An empty answer is an ExportMetricsServiceResponse: all of it was taken.
        self._answer(200)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        """Log nothing: a push per second would be a line per second."""


def main(arguments: list[str]) -> None:
    """Listen at the host and port of `arguments`, until the process is ended."""
    host, port = arguments
    with ThreadingHTTPServer((host, int(port)), _Handler) as server:
        server.daemon_threads = True
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
