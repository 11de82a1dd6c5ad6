"""Batches of a stream's rows counted by cell, and the pairs of columns that changed most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift.grid import CELLS
from drift.joint import BATCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from drift.joint import Cells, JointModel
    from drift.reference import Profile

_WHOLE_BATCHES: Final = 16
"""Batches of a window that are taken one after the other."""
_ONE_IN: Final = 128
"""Of the others one in so many: in all 1,792 rows of a window of 100,000."""

MAX_PAIRS: Final = 3
_FALSE_PAIRS: Final = 0.01
"""Accepted chance of naming any pair besides the strongest without a change in it."""


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


@dataclass(frozen=True, slots=True)
class Pair:
    """Two columns, and their mean correlation in batches of the reference and since.

    For a category it is the correlation of the value, or group of values, that changed most.
    """

    first: str
    second: str
    reference: float
    current: float

    def __str__(self) -> str:
        return (
            f"{self.first} and {self.second}: correlation "
            f"{self.reference:.2f} -> {self.current:.2f}"
        )


@dataclass(frozen=True, slots=True)
class JointSums:
    """The deviations of Fisher's z from the reference, added up over `batches`.

    `apart` (pairs,) are the pairs above the diagonal, each in units of its own standard
    deviation in the reference's batches.
    """

    apart: NDArray[np.float32]
    batches: int

    def __add__(self, other: JointSums) -> JointSums:
        return JointSums(self.apart + other.apart, self.batches + other.batches)


def changed_pairs(profile: Profile, parts: Iterable[JointSums]) -> tuple[Pair, ...]:
    """Return the pairs that changed most, at most `MAX_PAIRS`, strongest first.

    Others than the strongest must themselves differ from the reference, at the level
    `_FALSE_PAIRS` shared among all pairs, and be at least half as far from it as the
    strongest. Empty without a batch.
    """
    from scipy.special import ndtri  # noqa: PLC0415 - 0.1 s, not at import

    model, found = profile.joint, list(parts)
    batches = sum(part.batches for part in found)
    if model is None or not batches:
        return ()
    reference = float(profile.counts.values[-1])
    apart = np.stack([part.apart for part in found]).sum(axis=0, dtype=np.float64)
    strength = np.abs(apart) / batches / np.sqrt(1 / batches + 1 / reference)
    enough = max(
        strength.max() / 2, -float(ndtri(_FALSE_PAIRS / 2 / strength.shape[0]))
    )
    rows, columns = np.triu_indices(model.mean.shape[0], 1)
    names = _column_names(profile)
    pairs: dict[tuple[str, str], Pair] = {}
    for place in np.argsort(-strength, kind="stable").tolist():
        if len(pairs) == MAX_PAIRS or (pairs and strength[place] < enough):
            break
        at = rows[place], columns[place]
        mean, deviation = float(model.mean[at]), float(model.deviation[at])
        both = names[at[0]], names[at[1]]
        pairs.setdefault(
            both,
            Pair(
                *both,
                float(np.tanh(mean)),
                float(np.tanh(mean + deviation * apart[place] / batches)),
            ),
        )
    return tuple(pairs.values())


def _column_names(profile: Profile) -> list[str]:
    """The feature of each column of the joint model."""
    model, names = profile.joint, profile.schema.names
    if model is None:
        return []
    found = [names[place] for place in model.used]
    for name, code in zip(names[profile.schema.numeric :], model.codes, strict=True):
        found += [name] * code.chosen.size
    return found
