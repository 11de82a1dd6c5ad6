"""Busy time of the models: written by the statistics collector, read by energy."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.access.inventory import ModelKey


@dataclass(frozen=True, slots=True)
class ModelWork:
    """One model version since this process first saw it; nothing in it ever falls.

    Busy seconds are those of `batch_stats`, which count an execution once.
    """

    busy_seconds: float
    """Busy time of all executions, our own requests' included."""
    production_busy_seconds: float
    inferences: int
    """Inferences of production."""
    requests: int = 0
    """Requests of production, failed ones included."""
    output_tokens: float | None = None
    """Output tokens of production; None where they or their time are unknown."""
    is_ensemble: bool = False
    """True if other models that are watched do its work: Triton adds their time to it
    once for each request, also where they execute several requests together."""
    is_doubtful: bool = False
    """True if a failure of ours was counted as a success: some may be among the
    inferences."""
    is_busy_reported: bool = False
    """True if the backend itself reported, when last read, how long it generated tokens."""


Direction = Literal["input", "output"]


@dataclass(frozen=True, slots=True)
class KnownTokens:
    """Some requests of a model so far, and their tokens."""

    requests: int
    tokens: int


@dataclass(frozen=True, slots=True)
class WorkSnapshot:
    """The work of all model versions at one instant, in monotonic seconds."""

    at: float
    models: Mapping[ModelKey, ModelWork] = field(default_factory=dict)
    since: float = -math.inf
    """Monotonic seconds from which on no work is missing from the totals."""


class WorkBoard:
    """The latest reading. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._snapshot: WorkSnapshot | None = None
        self.traced: Mapping[ModelKey, KnownTokens] = {}
        """Traced requests to models whose responses are one token each; replaced as a
        whole."""
        self._answered: dict[tuple[str, Direction], KnownTokens] = {}

    def answered(self, model: str, direction: Direction, tokens: int) -> None:
        """Count a mirrored answer of `model` that reports its number of tokens."""
        with self._lock:
            old = self._answered.get((model, direction), KnownTokens(0, 0))
            new = KnownTokens(old.requests + 1, old.tokens + tokens)
            self._answered[model, direction] = new

    def answers_of(self, model: str, direction: Direction) -> KnownTokens | None:
        """Return the mirrored answers that report these tokens; None without any."""
        with self._lock:
            return self._answered.get((model, direction))

    def publish(self, snapshot: WorkSnapshot) -> None:
        """Replace the latest reading."""
        with self._lock:
            self._snapshot = snapshot

    @property
    def current(self) -> WorkSnapshot | None:
        """The latest reading, None before the first."""
        with self._lock:
            return self._snapshot
