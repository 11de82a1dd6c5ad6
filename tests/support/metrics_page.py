"""A metrics page as a Triton would show it, on a real socket."""

from __future__ import annotations

import http.server
import threading

from exporter.triton.http import HttpClient


class MetricsPage:
    """Shows `body` to whoever asks; `client` asks."""

    def __init__(self) -> None:
        self.body = b""
        page = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(page.body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.client = HttpClient(f"127.0.0.1:{self._server.server_port}")

    def close(self) -> None:
        """Show nothing more."""
        self.client.close()
        self._server.shutdown()
        self._server.server_close()
