"""Calibration measured by golden probes: confidence and accuracy of each model."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

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


class CalibrationBoard:
    """The latest calibrations of each model version, by golden set. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[ModelKey, dict[str, Calibrated]] = {}
        self._agree: dict[ModelKey, bool] = {}

    def publish(self, key: ModelKey, calibrated: Calibrated) -> None:
        """Replace the results of one golden set for one model version."""
        with self._lock:
            of_model = self._known.setdefault(key, {})
            of_model[calibrated.dataset] = calibrated
            main = _largest(of_model)
            others = [
                one.calibration
                for one in of_model.values()
                if main and one is not main and one.output == main.output
            ]
            if main and others:
                agree = [main.calibration.agrees_with(other) for other in others]
                self._agree[key] = all(agree)

    def forget(self, key: ModelKey) -> None:
        """Drop a model version that is no longer served."""
        with self._lock:
            self._known.pop(key, None)
            self._agree.pop(key, None)

    def get(self, key: ModelKey) -> Calibrated | None:
        """Return the calibration by the largest set; None if there is none."""
        with self._lock:
            return _largest(self._known.get(key, {}))

    def agree(self, key: ModelKey) -> bool | None:
        """Return whether all other golden sets are as right as the largest foretells.

        None where there is no other.
        """
        with self._lock:
            return self._agree.get(key)


def _largest(of_model: Mapping[str, Calibrated]) -> Calibrated | None:
    return max(of_model.values(), key=lambda c: c.calibration.samples, default=None)
