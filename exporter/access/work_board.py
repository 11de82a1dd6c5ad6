"""Busy time of the models: written by the statistics collector, read by energy."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.access.inventory import ModelKey


@dataclass(frozen=True, slots=True)
class ModelWork:
    """One model version since this process first saw it; nothing in it ever falls.

    Busy seconds are those of `batch_stats`, which count an execution once.
    """

    busy_seconds: float
    """Of all executions, our own requests' among them."""
    production_busy_seconds: float
    inferences: int
    """Production's."""
    requests: int = 0
    """Production's, failed ones among them."""
    output_tokens: float | None = None
    """Production's; None where they, or the time they took, are not known."""


@dataclass(frozen=True, slots=True)
class TracedResponses:
    """Traced requests so far, and their responses, of a model with one token in each."""

    requests: int
    responses: int


@dataclass(frozen=True, slots=True)
class Look:
    """All model versions at one instant, in monotonic seconds."""

    at: float
    models: Mapping[ModelKey, ModelWork] = field(default_factory=dict)


class WorkBoard:
    """The latest look. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._look: Look | None = None
        self.traced: Mapping[ModelKey, TracedResponses] = {}
        """Of models whose responses are tokens; replaced as a whole."""

    def publish(self, look: Look) -> None:
        """Replace the latest look."""
        with self._lock:
            self._look = look

    @property
    def current(self) -> Look | None:
        """The latest look, None before the first."""
        with self._lock:
            return self._look
