"""Consecutive rows of a stream, put together to batches and counted by cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift.grid import CELLS
from drift.joint import BATCH
from drift.joint_pairs import JointSums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from drift.joint import Cells, JointModel

_WHOLE_BATCHES: Final = 16
"""Batches of a window that are taken one after the other."""
_ONE_IN: Final = 128
"""Of the others one in so many: in all 1,792 rows of a window of 100,000."""


class JointCounter:
    """Puts consecutive rows together to batches, and counts these by cell.

    `known` are cells of the first batches, where they are known already.
    """

    def __init__(self, model: JointModel, known: Sequence[int] = ()) -> None:
        self._model = model
        self._known = list(reversed(known))
        self._buffer = np.zeros((BATCH, model.mean.shape[0]), np.float32)
        self._held = 0
        self._skip = 0
        self._taken = 0
        self._apart = np.zeros_like(model.mean)
        self._compared = 0

    def wants(self, rows: int) -> bool:
        """Return whether any of the next rows is of a batch that is taken."""
        return self._skip < rows

    def add(
        self, numeric: NDArray[np.floating], categories: Sequence[Cells], *, thin: bool
    ) -> NDArray[np.int64]:
        """Count the batches that these rows complete, (CELLS,).

        With `thin` only some batches of a long window are taken.
        """
        counts = np.zeros(CELLS, np.int64)
        start, rows = 0, numeric.shape[0]
        while start < rows:
            if self._skip:
                left_out = min(self._skip, rows - start)
                self._skip -= left_out
                start += left_out
                continue
            stop = min(rows, start + BATCH - self._held)
            part = self._model.columns(
                numeric[start:stop], [cells[start:stop] for cells in categories]
            )
            self._buffer[self._held : self._held + stop - start] = part
            self._held += stop - start
            start = stop
            if self._held == BATCH:
                counts[self._complete()] += 1
                if thin and self._taken >= _WHOLE_BATCHES:
                    self._skip = (_ONE_IN - 1) * BATCH
        return counts

    def leave_out(self, rows: int) -> None:
        """Skip rows that `wants` does not need."""
        self._skip -= rows

    def _complete(self) -> int:
        self._held = 0
        self._taken += 1
        if self._known:
            return self._known.pop()
        cell, apart = self._model.compare(self._buffer)
        self._apart += apart
        self._compared += 1
        return cell

    def sums(self) -> JointSums:
        """Return the deviations of all pairs over the batches of this window."""
        places = np.triu_indices(self._apart.shape[0], 1)
        return JointSums(self._apart[places], self._compared)

    def begin_window(self) -> None:
        """Begin a window: its first batches are all taken. An open batch continues."""
        self._taken = 0
        self._skip = 0
        self._apart[:] = 0.0
        self._compared = 0

    def state(self) -> dict[str, Any]:
        """Return the open batch and what is left out, as JSON values and an array."""
        rows = self._buffer[: self._held].astype(np.float64)
        return {"rows": rows, "skip": self._skip, "taken": self._taken}

    def resume(self, saved: dict[str, Any]) -> None:
        """Restore what `state` returned.

        Raises:
            ValueError: it is of other columns, or more than a batch.
            KeyError, TypeError: it cannot be read.
        """
        rows = np.array(saved["rows"], np.float64)
        held = rows.shape[0]
        if not held < BATCH:
            raise ValueError(f"an open batch of {held} rows")
        self._buffer[:held] = rows.reshape(held, self._buffer.shape[1])
        self._held = held
        self._skip, self._taken = max(int(saved["skip"]), 0), int(saved["taken"])
