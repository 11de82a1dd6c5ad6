"""Calibration measured by golden probes: confidence and accuracy of each model."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from drift.numerics.confidence_calibration import Calibration
    from exporter.access.inventory import ModelKey


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The calibration of one output of a model version."""

    output: str
    dataset: str
    calibration: Calibration
    logits: bool | None = None
    """True if the output is logits; None to decide that for each answer."""
    is_suspended: bool = False
    """True if the golden set cannot be measured at present."""


class CalibrationBoard:
    """The latest calibrations of each model version, by golden set. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[ModelKey, dict[str, Calibrated]] = {}

    def publish(self, key: ModelKey, calibrated: Calibrated) -> None:
        """Replace the results of one golden set for one model version."""
        with self._lock:
            self._known.setdefault(key, {})[calibrated.dataset] = calibrated

    def suspend(self, key: ModelKey, dataset: str) -> None:
        """Stop using the results of a golden set that cannot be measured at present."""
        with self._lock:
            of_model = self._known.get(key, {})
            if dataset in of_model:
                of_model[dataset] = replace(of_model[dataset], is_suspended=True)

    def keep(self, dataset: str, keys: Collection[ModelKey]) -> None:
        """Drop a golden set's results for all other model versions."""
        with self._lock:
            for key, of_model in list(self._known.items()):
                if key not in keys:
                    of_model.pop(dataset, None)
                if not of_model:
                    del self._known[key]

    def get(self, key: ModelKey) -> Calibrated | None:
        """Return the calibration by the largest set; None if there is none."""
        with self._lock:
            return _largest(self._known.get(key, {}))

    def agree(self, key: ModelKey) -> bool | None:
        """Return whether all other golden sets are as right as the largest foretells.

        Those of the same output; False if one of them is suspended, None where there is
        no other.
        """
        with self._lock:
            of_model = self._known.get(key, {}).copy()
        main = _largest(of_model)
        agree = [
            not other.is_suspended and main.calibration.agrees_with(other.calibration)
            for other in of_model.values()
            if main and other is not main and other.output == main.output
        ]
        return all(agree) if agree else None


def _largest(of_model: Mapping[str, Calibrated]) -> Calibrated | None:
    known = [found for found in of_model.values() if not found.is_suspended]
    return max(known, key=lambda c: c.calibration.samples, default=None)
