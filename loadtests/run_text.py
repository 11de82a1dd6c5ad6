"""The progress of a run as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TextIO

import numpy as np

from loadtests.result import Outcome
from pages.units import duration

if TYPE_CHECKING:
    from loadtests.engine import Progress
    from loadtests.scenario import Scenario

_SECOND: Final = 1.0


class Line:
    """Progress, one line a second; rewritten in place on a terminal."""

    def __init__(self, out: TextIO, scenario: Scenario) -> None:
        self._out = out
        self._length = scenario.profile.length_seconds
        self._terminal = out.isatty()
        self._said_at = 0.0
        self._ended = np.empty(0, np.int64)
        self._written = False

    def update(self, progress: Progress) -> None:
        """Write a line if a second has passed."""
        self._ended = np.concatenate((self._ended, progress.finished))
        passed = progress.elapsed_seconds - self._said_at
        if passed < _SECOND:
            return
        self._said_at = progress.elapsed_seconds
        ended, self._ended = self._ended, np.empty(0, np.int64)
        shown = self._line(progress, ended, passed)
        self._out.write(f"\r{shown:<79}" if self._terminal else f"{shown}\n")
        self._out.flush()
        self._written = True

    def end(self) -> None:
        """Leave the line."""
        if self._terminal and self._written:
            self._out.write("\n")

    def _line(
        self,
        progress: Progress,
        ended: np.ndarray[tuple[int], np.dtype[np.int64]],
        passed: float,
    ) -> str:
        requests = progress.requests
        chosen = requests.where(ended)
        timed = chosen.timed
        late = chosen.done[timed] - chosen.intended[timed]
        tail = duration(float(np.quantile(late, 0.99))) if late.size else "?"
        missed = len(chosen) - chosen.count(Outcome.OK)
        return (
            f"{progress.elapsed_seconds:5.0f} of {self._length:.0f} s"
            f"  {chosen.count(Outcome.OK) / passed:7.0f}/s"
            f"  p99 {tail}  in flight {progress.in_flight}  missed {missed}"
        )
