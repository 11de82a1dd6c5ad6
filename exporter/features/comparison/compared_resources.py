"""Energy and memory of champion and challenger, where something measures them."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.errors import TritonError
from exporter.features.comparison.confidence import (
    MIXTURE_WINDOWS,
    Interval,
    mean_ratio,
)
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.features.comparison.comparison_settings import Metric
    from exporter.samples import AnySample
    from exporter.triton.protocol_types import ModelStatistics

ENERGY: Final = "triton_model_energy_joules_total"
INFERENCES: Final = "triton_inferences_total"
ENERGY_ERROR: Final = "triton_model_energy_share_error_ratio"
_READ: Final = frozenset({ENERGY, INFERENCES, ENERGY_ERROR})
"""Metrics that a comparison of energy reads."""
_MOST_WINDOWS: Final = 5_000
_TIMEOUT_SECONDS: Final = 2.0


def _widened(ratio: Interval, error: float) -> Interval:
    """Return the interval of a ratio less 1 whose two parts are off by a ratio, too.

    A model's watts are the same in every window: windows do not show their error.
    """
    return replace(
        ratio,
        low=(1.0 + ratio.low) / (1.0 + error) - 1.0,
        high=(1.0 + ratio.high) * (1.0 + error) - 1.0,
    )


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
        self._error = 0.0
        """Of the ratio of the two energies, by the errors of the models' watts."""

    def update(
        self, exposed: Iterable[AnySample], keys: tuple[ModelKey, ModelKey]
    ) -> None:
        """Record the samples that are exposed now."""
        found: dict[str, dict[ModelKey, float]] = defaultdict(dict)
        for sample in exposed:
            if sample.spec.name in _READ and isinstance(sample, Sample):
                values = found[sample.spec.name]
                key = (sample.labels[0], sample.labels[1])
                values[key] = values.get(key, 0.0) + sample.value
        energy, inferences = found.get(ENERGY, {}), found.get(INFERENCES, {})
        errors = found.get(ENERGY_ERROR, {})
        self._error = math.hypot(*(errors.get(key, 0.0) for key in keys))
        if keys != self._keys:
            self._keys, self._last, self._windows = keys, None, []
            self._bytes = self._memory(keys)
        if set(keys) <= energy.keys() & inferences.keys():
            a, b = ((energy[key], inferences[key]) for key in keys)
            self._window((a, b))

    def intervals(self, wanted: Sequence[Metric]) -> dict[Metric, Interval]:
        """Return the intervals of energy and memory; unknown ones are absent."""
        found: dict[Metric, Interval] = {}
        if "energy" in wanted and self._windows:
            x, y = np.array(self._windows).T
            ratio = mean_ratio(x, y, self._alpha, MIXTURE_WINDOWS)
            if ratio is not None:
                found["energy"] = _widened(ratio, self._error)
        if "memory" in wanted and self._bytes is not None:
            champion, challenger = self._bytes
            effect = challenger / champion - 1
            # Triton reports it once, at load: it is not random.
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
                entry.key: entry.memory_bytes
                for entry in self._statistics(timeout_seconds=_TIMEOUT_SECONDS)
            }
        except TritonError:
            return None
        champion, challenger = (found.get(key, 0) for key in keys)
        return (champion, challenger) if champion and challenger else None
