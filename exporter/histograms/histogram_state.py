"""A histogram's state as read from a file or another process: checked, then believed."""

from __future__ import annotations

import sys
from typing import Annotated, Final, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, model_validator

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
Seconds = Annotated[float, Field(ge=0, le=sys.float_info.max)]


class HistogramState(BaseModel):
    """The state of a `Histogram`; `counts` start at bucket `prometheus_offset`.

    Raises:
        ValueError: a value is missing, of another version, of the wrong type, out of range,
            or contradicts the others.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    version: int = Field(ge=STATE_VERSION, le=STATE_VERSION)
    exponent: int = Field(ge=SCHEMA, le=SCHEMA, alias="schema")
    """The schema of the buckets."""
    prometheus_offset: int
    counts: list[NonNegativeInt] = Field(max_length=LAST_SLOT)
    zero_count: NonNegativeInt
    sum: Seconds
    min: Seconds | None
    max: Seconds | None

    @property
    def count(self) -> int:
        """Number of observations."""
        return self.zero_count + sum(self.counts)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        first, last = FIRST_INDEX + 1, LAST_INDEX + 1 - len(self.counts)
        if self.counts and not first <= self.prometheus_offset <= last:
            raise _error(
                "prometheus_offset", self.prometheus_offset, f"{first} to {last}"
            )
        count = self.count
        if count > MAX_COUNT:
            raise _error("count", count, f"at most {MAX_COUNT}")
        if not count:
            if self.sum or self.min is not None or self.max is not None:
                raise _error("sum, min or max", "given", "none without observations")
            return self
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
        return self

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


def _error(key: str, found: object, right: str) -> ValueError:
    return ValueError(f"{key} is {found!r:.80}; want {right}")
