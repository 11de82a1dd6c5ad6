"""Sums since remembered starts, in bounded memory.

A start is the beginning of a window. All of the last `RECENT` are remembered, older ones
ever more sparsely, the first one always. Forgetting a start takes a non-negative term
out of the evidence, so the guaranteed error rate holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift.projection import BINS, EVENTS, FEWER_BINS, Summary, trials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MAX_STARTS: Final = 32
RECENT: Final = 8

_ALL: Final = slice(None)
_DENSE_AGE: Final = 64
_FINITE, _LOCATION, _SCALE, _ROWS = 0, 1, 2, 3
_BINS = slice(4, 4 + BINS)
_EVENTS = slice(4 + BINS, 4 + BINS + len(EVENTS))
_TRIALS: Final = 4 + BINS + len(EVENTS)
_WIDTH: Final = _TRIALS + 1
_BY_WORTH: Final = (_FINITE, _LOCATION, _SCALE, *range(4, 4 + BINS))


class Sums:
    """A view on packed sums (..., features, fields) by name."""

    def __init__(self, packed: Floats) -> None:
        self.packed = packed
        self.finite: Floats = packed[..., _FINITE]
        self.location: Floats = packed[..., _LOCATION]
        self.scale: Floats = packed[..., _SCALE]
        self.rows: Floats = packed[..., _ROWS]
        self.bins: Floats = packed[..., _BINS]
        self.events: Floats = packed[..., _EVENTS]
        self.trials: Floats = packed[..., _TRIALS]
        """All values: the rows, or the batches of a joint feature."""


def pack(summary: Summary, worth: Floats | None = None) -> Floats:
    """A window's summary as (features, fields).

    `worth` (features,) is the share of the distribution that counts, see `Season.worth`;
    events and trials count in full.
    """
    packed = np.empty((summary.finite.shape[0], _WIDTH))
    packed[:, _FINITE] = summary.finite
    packed[:, _LOCATION] = summary.location
    packed[:, _SCALE] = summary.scale
    packed[:, _ROWS] = summary.rows
    packed[:, _BINS] = summary.bins
    packed[:, _EVENTS] = summary.events
    packed[:, _TRIALS] = trials(summary.finite, summary.events)
    if worth is not None:
        packed[:, _BY_WORTH] *= worth[:, None]
    return packed


class Ledger:
    """The sums of everything so far, and since each remembered start.

    `ages` are windows since each start, newest start first; a start of age 1 holds the
    last window only.
    """

    def __init__(self, reference: Floats) -> None:
        self._total = reference.copy()
        self._frozen: Floats | None = None
        # One row more than are kept: a start is added before one is forgotten.
        self._since = np.zeros((MAX_STARTS + 1, *reference.shape))
        self._rows: list[int] = []
        self._starts: list[int] = []
        self.windows = 0

    @property
    def ages(self) -> list[int]:
        """Windows since each start, newest first."""
        return [self.windows - start for start in self._starts]

    @property
    def rows_since(self) -> Floats:
        """Rows since each start, newest first."""
        return self._since[self._rows, 0, _ROWS]

    @property
    def frozen(self) -> bool:
        """Return whether the baseline is frozen because a change was declared."""
        return self._frozen is not None

    def push(self, window: Floats) -> None:
        """Add a closed window, which is also a new start."""
        for row in self._rows:
            self._since[row] += window
        row = next(row for row in range(MAX_STARTS + 1) if row not in self._rows)
        self._since[row] = window
        self._rows.insert(0, row)
        self._starts.insert(0, self.windows)
        self.windows += 1
        if self._frozen is None:
            self._total += window
        self._forget()

    def _forget(self) -> None:
        keep = [
            index
            for index, start in enumerate(self._starts)
            if start == self._starts[-1] or start % _spacing(self.windows - start) == 0
        ]
        while len(keep) > MAX_STARTS:
            del keep[-2]
        self._rows = [self._rows[index] for index in keep]
        self._starts = [self._starts[index] for index in keep]

    def sides(
        self, part: slice = _ALL, starts: Sequence[int] | None = None
    ) -> tuple[Sums, Sums]:
        """Return the sums before each start, and since: (starts, features, fields) each.

        They cover `part` of the features and the given `starts`, which are indices into
        `ages`; by default all.
        """
        rows = self._rows if starts is None else [self._rows[start] for start in starts]
        since = self._since[rows, part]
        if self._frozen is not None:
            before = np.broadcast_to(self._frozen[part], since.shape)
        else:
            before = self._total[part] - since
        return Sums(before), Sums(since)

    def freeze(self, index: int) -> None:
        """Declare a change at a start: all before it stays the baseline."""
        self._frozen = self.sides(starts=[index])[0].packed[0].copy()
        self._clear()

    def thaw(self) -> None:
        """The change is over: learn again, from the frozen baseline on."""
        if self._frozen is not None:
            self._total = self._frozen
        self._frozen = None
        self._clear()

    def _clear(self) -> None:
        self._rows = []
        self._starts = []

    def state(self) -> dict[str, Any]:
        """Return the state, JSON-able once arrays are lists."""
        return {
            "total": self._total,
            "frozen": self._frozen,
            "since": [self._since[row] for row in self._rows],
            "starts": list(self._starts),
            "windows": self.windows,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned.

        Raises:
            ValueError, IndexError: its arrays do not have this ledger's shape.
        """
        shape = self._total.shape
        starts = [int(start) for start in state["starts"]]
        since = state["since"]
        if len(starts) != len(since) or len(starts) > MAX_STARTS:
            raise ValueError(f"{len(starts)} starts, sums of {len(since)}")
        self._total = _restored(state["total"], shape)
        for row, sums in enumerate(since):
            self._since[row] = _restored(sums, shape)
        frozen = state["frozen"]
        self._frozen = None if frozen is None else _restored(frozen, shape)
        self._rows = list(range(len(starts)))
        self._starts = starts
        self.windows = int(state["windows"])


def _spacing(age: int) -> int:
    if age <= RECENT:
        return 1
    octave = age.bit_length() - 1
    return 1 << (octave - 2 if age < _DENSE_AGE else octave - 1)


def _restored(saved: object, shape: tuple[int, ...]) -> Floats:
    sums = np.array(saved, np.float64)
    if sums.shape[-1] <= _TRIALS - BINS + FEWER_BINS + 1:
        # Saved when there were fewer bins.
        sums = np.insert(sums, [4 + FEWER_BINS] * (BINS - FEWER_BINS), 0.0, axis=-1)
    if sums.shape[-1:] == (_TRIALS,):
        # Saved before trials had a field of their own.
        sums = np.append(
            sums, trials(sums[..., _FINITE], sums[..., _EVENTS])[..., None], axis=-1
        )
    return sums.reshape(shape)
