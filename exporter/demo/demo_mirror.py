"""What a proxy that mirrors does: passes copies on, waits for nothing, holds nobody up."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Final, Self

from exporter.errors import TritonError
from exporter.triton.http import HttpClient

if TYPE_CHECKING:
    from exporter.triton.model import InferRequest

_WAITING: Final = 100
_TIMEOUT_SECONDS: Final = 0.5


class Mirror:
    """Sends a copy of each request to the tap, byte for byte as it would go to Triton."""

    def __init__(self, port: int) -> None:
        self._client = HttpClient(f"127.0.0.1:{port}")
        self._waiting: queue.Queue[InferRequest | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(
            target=self._pass_on, name="mirror", daemon=True
        )

    def __enter__(self) -> Self:
        """Start passing on."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; copies that still wait are let go."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        self._waiting.put(None)
        self._thread.join(2 * _TIMEOUT_SECONDS)
        self._client.close()

    def __call__(self, request: InferRequest) -> None:
        """Pass one on, unless too many wait already."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(request)

    def _pass_on(self) -> None:
        while (request := self._waiting.get()) is not None:
            # A tap answers, but with no inference; whoever mirrors does not look.
            with contextlib.suppress(TritonError):
                self._client.infer(request, timeout_seconds=_TIMEOUT_SECONDS)
