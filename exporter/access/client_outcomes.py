"""Outcomes of requests as their clients saw them, by model version and source.

Triton 2.51 books the error answer of a Python model as a success, so these counts come
from what clients were sent. What is kept is bounded by the models the server has, or
had within the last hour.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Final, Literal

from exporter import catalogue
from exporter.access.inventory import latest_of, latest_version
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.access.collector_base import Access
    from exporter.access.inventory import ModelKey

ClientOutcome = Literal["success", "failure", "abandoned"]
"""Answered; answered with an error; the client left before the answer."""
OUTCOMES: Final[tuple[ClientOutcome, ...]] = ("success", "failure", "abandoned")
FORGET_SECONDS: Final = 3600.0


class ClientOutcomes:
    """Counts of one source. Thread-safe."""

    def __init__(self, source: str, access: Access) -> None:
        self._source = source
        self._access = access
        self._lock = threading.Lock()
        self._counts: dict[ModelKey, Counter[ClientOutcome]] = {}
        self._known_at: dict[ModelKey, float] = {}

    def add(
        self, model: str, version: str, outcome: ClientOutcome, number: int = 1
    ) -> bool:
        """Count requests; False where the server has no such model version.

        Without a version the latest is meant, as Triton does by default.
        """
        with self._lock:
            self._refresh()
            key = self._key(model, version)
            if key is None:
                return False
            self._counts[key][outcome] += number
            return True

    def samples(self, *, only_failed: bool = False) -> Iterator[Sample]:
        """The counts of every model; `only_failed`: of those with a failure."""
        with self._lock:
            self._refresh()
            counted = {key: dict(counts) for key, counts in self._counts.items()}
        for key, counts in sorted(counted.items()):
            if only_failed and not counts.get("failure"):
                continue
            for outcome in OUTCOMES:
                yield Sample(
                    catalogue.CLIENT_REQUESTS,
                    counts.get(outcome, 0),
                    (*key, outcome, self._source),
                )

    def _key(self, model: str, version: str) -> ModelKey | None:
        if not version:
            # A model that was unloaded fails for its clients all the same.
            version = (
                latest_version(self._access.board.current, model)
                or latest_of(self._counts, model)
                or ""
            )
        key = (model, version)
        return key if key in self._counts else None

    def _refresh(self) -> None:
        """Start to count new models, and drop those removed long ago."""
        now = self._access.clock()
        for key in self._access.board.current.models:
            if self._access.models.matches(key[0]):
                self._counts.setdefault(key, Counter())
                self._known_at[key] = now
        for key, known_at in list(self._known_at.items()):
            if now - known_at > FORGET_SECONDS:
                del self._known_at[key], self._counts[key]
