"""The state of each model, since when it is known, and the hours before it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exporter.status.recorded_history import STEP_SECONDS, RecordedHistory
from exporter.status.status_findings import findings, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from exporter.access.inventory import Inventory, ModelKey
    from exporter.features.slo.objectives import Objective
    from exporter.samples import AnySample
    from exporter.settings import ModelMention
    from exporter.status.status_findings import Finding, State


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model's headline, and since when it is known, in seconds since 1970."""

    state: State
    since: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """The findings at one moment, and the state of each model that follows from them."""

    findings: Sequence[Finding]
    states: Mapping[ModelKey, ModelState]


class StatusBoard:
    """Judges the exposed samples, and remembers the findings. Thread-safe."""

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._history = RecordedHistory()
        self._states: dict[ModelKey, ModelState] = {}
        self._next_at = 0.0

    def judge(
        self,
        samples: Iterable[AnySample],
        inventory: Inventory,
        serving: Mapping[ModelKey, bool],
        objectives: Iterable[Objective],
        mentions: Iterable[ModelMention] = (),
        stalled: Iterable[ModelKey] = (),
    ) -> Judgement:
        """Return the current findings; a changed state becomes a mark."""
        found = findings(samples, inventory, serving, objectives, mentions, stalled)
        keys = [(e.name, e.version) for e in inventory.index if e.state]
        with self._lock:
            now = self._wall_clock()
            before, self._states = self._states, {}
            for key in keys:
                state = state_of(key, found, inventory, serving)
                old = before.get(key)
                if old is not None and old.state == state:
                    self._states[key] = old
                    continue
                self._states[key] = ModelState(state, now)
                if old is not None:
                    kind = "good" if state == "SERVING" else "bad"
                    text = f"{key[0]} {key[1]}: {old.state} to {state}"
                    self._history.mark(now, kind, text)
            return Judgement(found, dict(self._states))

    def mark(self, text: str) -> None:
        """Remember something that is neither good nor bad."""
        with self._lock:
            self._history.mark(self._wall_clock(), "neutral", text)

    def is_due(self) -> bool:
        """Return whether it is time to record another point."""
        return self._wall_clock() >= self._next_at

    def record(self, samples: Iterable[AnySample]) -> None:
        """Add a point to the history."""
        with self._lock:
            now = self._wall_clock()
            self._next_at = now + STEP_SECONDS
            self._history.record(samples, now)

    def has_history(self, key: ModelKey) -> bool:
        """Return whether a model version has recorded history."""
        with self._lock:
            return self._history.has(key)

    def history(self, key: ModelKey | None) -> dict[str, Any]:
        """Return the lines of a model version, or the rates of all and the marks."""
        with self._lock:
            return self._history.rates() if key is None else self._history.of_model(key)
