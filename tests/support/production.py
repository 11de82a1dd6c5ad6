"""Clients of a server that know of no sidecar."""

from __future__ import annotations

import threading
from typing import Self

from exporter.triton.grpc import GrpcClient


class Production:
    """Asks again and again, each of some users in a thread of its own, until its block ends.

    Subclasses say in `ask` what; what it raises ends that user, and is raised where the
    block ends.
    """

    def __init__(self, grpc: str, *, pause_seconds: float, users: int = 1) -> None:
        self.client = GrpcClient(grpc)
        self.pause_seconds = pause_seconds
        self.sent = 0
        """Requests whose end was seen."""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._failures: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._use, args=(user,), daemon=True)
            for user in range(users)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)
        self.client.close()
        if kind is None and self._failures:
            raise self._failures[0]

    def ask(self, user: int) -> None:
        """One request."""
        raise NotImplementedError

    def _use(self, user: int) -> None:
        try:
            while not self._over.wait(self.pause_seconds):
                self.ask(user)
                with self._lock:
                    self.sent += 1
        except Exception as error:  # noqa: BLE001 - raised where the block ends
            self._failures.append(error)
