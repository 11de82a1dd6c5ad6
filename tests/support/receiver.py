"""An HTTP server of a test's own, in the place of a collector, a sidecar or a page."""

from __future__ import annotations

import http.server
import threading
from typing import NamedTuple, Self


class Asked(NamedTuple):
    """One request; the names of its headers are in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Keeps what is POSTed to it and answers `status` and `body`, or what `answer` says."""

    def __init__(self, status: int = 200, body: bytes = b"", port: int = 0) -> None:
        self.status, self.body = status, body
        self.received: list[Asked] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                given = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {k.lower(): v for k, v in self.headers.items()}
                asked = Asked(self.path, headers, given)
                if self.command == "POST":
                    outer.received.append(asked)
                body, more = outer.answer(asked)
                self.send_response(outer.status)
                for name, value in more.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815 - the base class asks for this name

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.address}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def answer(self, asked: Asked) -> tuple[bytes, dict[str, str]]:  # noqa: ARG002 - for those that decide by it
        """The body of an answer, and headers of its own."""
        return self.body, {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
