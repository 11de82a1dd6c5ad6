"""Where golden probes leave how confident and how right each model was, for who asks."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.access.inventory import ModelKey
    from exporter.numerics.confidence_calibration import Calibration


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The calibration of one output of a model version."""

    output: str
    dataset: str
    calibration: Calibration


class CalibrationBoard:
    """The latest calibration of each model version. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[ModelKey, Calibrated] = {}

    def publish(self, key: ModelKey, calibrated: Calibrated) -> None:
        """Replace what is known of one model version, by more samples or the same set."""
        with self._lock:
            before = self._known.get(key)
            if (
                before is None
                or before.dataset == calibrated.dataset
                or before.calibration.samples < calibrated.calibration.samples
            ):
                self._known[key] = calibrated

    def forget(self, key: ModelKey) -> None:
        """The model version is gone."""
        with self._lock:
            self._known.pop(key, None)

    def get(self, key: ModelKey) -> Calibrated | None:
        """Return the calibration of one model version; None if there is none."""
        with self._lock:
            return self._known.get(key)
