"""The accuracy of each model by one golden set, over its versions and over reloads."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from exporter.access.calibration_board import CalibrationBoard

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from exporter.access.calibration_board import Calibrated
    from exporter.access.inventory import ModelKey


@dataclass(slots=True)
class Watched:
    """The accuracy of one model version on one golden set, and the alarm of its loss."""

    sha256: str = ""
    """Hash of the golden set."""
    baseline: float | None = None
    """Learnt accuracy."""
    learnt_from: str = ""
    """Version of the model that `baseline` is of: this one or the one before."""
    first_round_of: str = ""
    """Version of the model whose first round has ended."""
    level: int = 0
    """Level of the chart."""
    alarm: bool = False


@dataclass(slots=True)
class GoldenHistory:
    """The watched accuracies by one golden set, and its calibrations on the board.

    `hand_over` ends a probe's history and begins that of the probe which replaces it;
    `close` ends it without one. What an attempt still under way finds is then lost.
    Thread-safe.
    """

    board: CalibrationBoard
    dataset: str
    watched: dict[ModelKey, Watched] = field(default_factory=dict)
    """Of versions that are gone as well: they may come back."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def present(self, keys: AbstractSet[ModelKey]) -> None:
        """Begin the history of versions that are new, and drop calibrations of those gone."""
        with self._lock:
            for key in keys - self.watched.keys():
                self.watched[key] = self._before(key[0])
            self.board.keep(self.dataset, keys)

    def of(self, key: ModelKey, sha256: str) -> Watched:
        """Return the watched accuracy of a version, a new one for other data."""
        with self._lock:
            found = self.watched.get(key) or self._before(key[0])
            if found.sha256 != sha256:
                found = Watched(sha256)
            self.watched[key] = found
            return found

    def _before(self, model: str) -> Watched:
        """Return the baseline for a version that comes now: that of the latest before it."""
        found = Watched()
        for (name, _), watched in self.watched.items():
            if name == model and watched.baseline is not None:
                found = replace(watched, level=0, alarm=False)
        return found

    def publish(self, key: ModelKey, calibrated: Calibrated) -> None:
        """Replace the calibration of a version."""
        with self._lock:
            self.board.publish(key, calibrated)

    def hand_over(self) -> GoldenHistory:
        """Return the same history for a successor, whose settings may differ."""
        with self._lock:
            copies = {key: replace(one, level=0) for key, one in self.watched.items()}
            board, self.board = self.board, CalibrationBoard()
        return GoldenHistory(board, self.dataset, copies)

    def close(self) -> None:
        """Take the calibrations back."""
        self.hand_over().board.keep(self.dataset, ())
