"""A histogram's state as read from a file or another process: checked, then believed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from exporter.histograms.buckets import (
    FIRST_INDEX,
    LAST_INDEX,
    LAST_SLOT,
    SCHEMA,
    ZERO_THRESHOLD,
    SparseCounts,
    prometheus_index,
)

STATE_VERSION: Final = 1
MAX_COUNT: Final = 2**53  # every count below it is exact as a float, too
_TOLERANCE: Final = 1e-6  # of a sum: a billion additions


@dataclass(frozen=True, slots=True)
class HistogramState:
    """The state of a `Histogram`; `counts` start at bucket `prometheus_offset`."""

    prometheus_offset: int
    counts: tuple[int, ...]
    zero_count: int
    sum: float
    min: float | None
    max: float | None

    @property
    def count(self) -> int:
        """Number of observations."""
        return self.zero_count + sum(self.counts)

    def to_mapping(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "version": STATE_VERSION,
            "schema": SCHEMA,
            "prometheus_offset": self.prometheus_offset,
            "counts": list(self.counts),
            "zero_count": self.zero_count,
            "sum": self.sum,
            "min": self.min,
            "max": self.max,
        }

    @classmethod
    def from_mapping(cls, state: Mapping[str, Any]) -> HistogramState:
        """Read a state, validating every value.

        Raises:
            ValueError: at the first thing that is missing, of another version, of the
                wrong type, out of range, or contradicts the rest.
        """
        if not isinstance(state, Mapping):
            raise _error("the whole", state, "a mapping")
        for key, known in (("version", STATE_VERSION), ("schema", SCHEMA)):
            if type(state.get(key)) is not int or state[key] != known:
                raise _error(key, state.get(key), str(known))
        counts = state.get("counts")
        if not isinstance(counts, list | tuple) or len(counts) > LAST_SLOT:
            raise _error("counts", counts, f"a list of up to {LAST_SLOT} counts")
        for count in (*counts, state.get("zero_count")):
            if type(count) is not int or count < 0:
                raise _error("counts or zero_count", count, "a whole number >= 0")
        checked = cls(
            prometheus_offset=_offset(state, len(counts)),
            counts=tuple(counts),
            zero_count=state["zero_count"],
            sum=_seconds(state, "sum") or 0.0,
            min=_seconds(state, "min"),
            max=_seconds(state, "max"),
        )
        checked._check_agreement()
        return checked

    def _check_agreement(self) -> None:
        count = self.count
        if count > MAX_COUNT:
            raise _error("count", count, f"at most {MAX_COUNT}")
        if not count:
            if self.sum or self.min is not None or self.max is not None:
                raise _error("sum, min or max", "given", "absent without observations")
            return
        lowest, highest = self._populated_indexes()
        for key, value, index in (
            ("min", self.min, lowest),
            ("max", self.max, highest),
        ):
            if value is not None and _index(value) != index:
                raise _error(key, value, f"a value in bucket {index}, where counts end")
        low, high = self._sum_limits()
        if not low * (1.0 - _TOLERANCE) <= self.sum <= high * (1.0 + _TOLERANCE):
            raise _error("sum", self.sum, f"{low:.9g} to {high:.9g} for these counts")

    def _sum_limits(self) -> tuple[float, float]:
        held = SparseCounts()
        held.add(self.prometheus_offset - FIRST_INDEX, np.array(self.counts, np.int64))
        low, high = held.sum_limits()
        return low, high + self.zero_count * ZERO_THRESHOLD

    def _populated_indexes(self) -> tuple[int, int]:
        indexes = [self.prometheus_offset + i for i, n in enumerate(self.counts) if n]
        if self.zero_count:
            indexes = [FIRST_INDEX, *indexes]
        return indexes[0], indexes[-1]


def _index(value: float) -> int:
    if value <= ZERO_THRESHOLD:
        return FIRST_INDEX
    return min(prometheus_index(value), LAST_INDEX)


def _offset(state: Mapping[str, Any], size: int) -> int:
    offset = state.get("prometheus_offset")
    first, last = FIRST_INDEX + 1, LAST_INDEX + 1 - size
    if type(offset) is int and (first <= offset <= last or not size):
        return offset
    raise _error("prometheus_offset", offset, f"a bucket index from {first} to {last}")


def _seconds(state: Mapping[str, Any], key: str) -> float | None:
    value = state.get(key)
    if value is None and key != "sum":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _error(key, value, "a number of seconds")
    if not 0 <= value <= sys.float_info.max:
        raise _error(key, value, "a finite number of seconds >= 0")
    return float(value)


def _error(key: str, found: object, right: str) -> ValueError:
    return ValueError(f"histogram state: {key} is {found!r:.80}; expected {right}")
