"""Forwards received trace bodies to an OpenTelemetry collector.

If the collector is slow or down, bodies that do not fit into the queue are dropped and
counted; nothing waits, and nothing is sent twice.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

import urllib3

from exporter import catalogue
from exporter.samples import Sample
from exporter.triton.patience import pool_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.taps.tap_route import TapRequest

MAX_QUEUED_BYTES: Final = 16 << 20
TIMEOUT_SECONDS: Final = 5.0
SOURCE: Final = "otlp_forward"
_PASSED_HEADERS: Final = ("content-type", "content-encoding")
_OK: Final = range(200, 300)


class Forwarder:
    """One thread that posts to one URL."""

    def __init__(
        self,
        url: str,
        *,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._url = url
        self._max_queued_bytes = max_queued_bytes
        self._timeout = urllib3.Timeout(total=timeout_seconds)
        self._pool = pool_of(1, None)
        self._queue: queue.SimpleQueue[TapRequest | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._queued_bytes = 0
        self._outcomes: Counter[str] = Counter(forwarded=0, failed=0, dropped=0)
        threading.Thread(target=self._work, name="otlp-forward", daemon=True).start()

    def offer(self, request: TapRequest) -> None:
        """Queue a body, as it was sent; never waits."""
        size = len(request.raw)
        with self._lock:
            if self._queued_bytes + size > self._max_queued_bytes:
                self._outcomes["dropped"] += 1
                return
            self._queued_bytes += size
        self._queue.put(request)

    def close(self) -> None:
        """End after the body that is being sent; the others are dropped."""
        with self._lock:
            self._max_queued_bytes = 0
        self._queue.put(None)

    def samples(self) -> Iterator[Sample]:
        """Yield the number of bodies by outcome."""
        with self._lock:
            outcomes = dict(self._outcomes)
        for outcome, number in outcomes.items():
            yield Sample(catalogue.TAP_REQUESTS, number, (SOURCE, outcome))

    def _work(self) -> None:
        while (request := self._queue.get()) is not None:
            outcome = "forwarded" if self._sent(request) else "failed"
            with self._lock:
                self._queued_bytes -= len(request.raw)
                self._outcomes[outcome] += 1
                if not self._max_queued_bytes:
                    return

    def _sent(self, request: TapRequest) -> bool:
        headers = {
            name: request.headers[name]
            for name in _PASSED_HEADERS
            if name in request.headers
        }
        try:
            answer = self._pool.request(
                "POST",
                self._url,
                body=request.raw,
                headers=headers,
                timeout=self._timeout,
                redirect=False,
            )
        except (urllib3.exceptions.HTTPError, OSError):
            return False
        return answer.status in _OK
