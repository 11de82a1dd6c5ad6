"""Energy and memory of champion and challenger, where something measures them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.errors import TritonError
from exporter.features.comparison.confidence import (
    MIXTURE_WINDOWS,
    Interval,
    mean_ratio,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.features.comparison.comparison_settings import Metric
    from exporter.samples import AnySample
    from exporter.triton.model import ModelStatistics

ENERGY: Final = "triton_model_energy_joules_total"
INFERENCES: Final = "triton_inferences_total"
_MOST_WINDOWS: Final = 5_000
_TIMEOUT_SECONDS: Final = 2.0


class Resources:
    """Joules per inference from exposed samples, by window; memory from Triton."""

    def __init__(
        self, alpha: float, statistics: Callable[..., tuple[ModelStatistics, ...]]
    ) -> None:
        self._alpha = alpha
        self._statistics = statistics
        self._last: tuple[tuple[float, float], tuple[float, float]] | None = None
        self._windows: list[tuple[float, float]] = []
        self._bytes: tuple[int, int] | None = None
        self._keys: tuple[ModelKey, ModelKey] | None = None

    def look(
        self, exposed: Iterable[AnySample], keys: tuple[ModelKey, ModelKey]
    ) -> None:
        """Record the samples that are exposed now."""
        energy: dict[ModelKey, float] = {}
        inferences: dict[ModelKey, float] = {}
        for sample in exposed:
            if sample.spec.name not in {ENERGY, INFERENCES}:
                continue
            found = energy if sample.spec.name == ENERGY else inferences
            key = (sample.labels[0], sample.labels[1])
            found[key] = found.get(key, 0.0) + float(getattr(sample, "value", 0.0))
        self.take(energy, inferences, keys)

    def take(
        self,
        energy: Mapping[ModelKey, float],
        inferences: Mapping[ModelKey, float],
        keys: tuple[ModelKey, ModelKey],
    ) -> None:
        """Record the current counters: joules and inferences of each model."""
        if keys != self._keys:
            self._keys, self._last, self._windows = keys, None, []
            self._bytes = self._memory(keys)
        if set(keys) <= energy.keys() & inferences.keys():
            a, b = ((energy[key], inferences[key]) for key in keys)
            self._window((a, b))

    @property
    def windows(self) -> int:
        """Number of windows in which both are known."""
        return len(self._windows)

    def intervals(self, wanted: Sequence[Metric]) -> dict[Metric, Interval]:
        """Return the intervals of energy and memory; unknown ones are absent."""
        found: dict[Metric, Interval] = {}
        if "energy" in wanted and self._windows:
            x, y = np.array(self._windows).T
            ratio = mean_ratio(x, y, self._alpha, MIXTURE_WINDOWS)
            if ratio is not None:
                found["energy"] = ratio
        if "memory" in wanted and self._bytes is not None:
            champion, challenger = self._bytes
            effect = challenger / champion - 1
            # Triton says it once, at load: nothing about it is random.
            found["memory"] = Interval(effect, effect, effect, 1)
        return found

    def _window(self, now: tuple[tuple[float, float], tuple[float, float]]) -> None:
        if self._last is None:
            self._last = now
            return
        joules = [n[0] - b[0] for n, b in zip(now, self._last, strict=True)]
        inferences = [n[1] - b[1] for n, b in zip(now, self._last, strict=True)]
        if min(inferences) < 0 or min(joules) < 0:
            self._last = now
            return
        if min(inferences) >= 1 and min(joules) > 0:
            if len(self._windows) < _MOST_WINDOWS:
                self._windows.append(
                    (joules[0] / inferences[0], joules[1] / inferences[1])
                )
            self._last = now

    def _memory(self, keys: tuple[ModelKey, ModelKey]) -> tuple[int, int] | None:
        try:
            found = {
                (entry.name, entry.version): entry.memory_bytes
                for entry in self._statistics(timeout_seconds=_TIMEOUT_SECONDS)
            }
        except TritonError:
            return None
        champion, challenger = (found.get(key, 0) for key in keys)
        return (champion, challenger) if champion and challenger else None
