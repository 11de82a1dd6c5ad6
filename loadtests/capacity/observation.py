"""One run at one rate, judged by an objective in blocks of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from loadtests.capacity.load_objective import Slo
    from loadtests.result import Requests

    Floats = NDArray[np.float64]

BATCH: Final = 5
LEAST: Final = 10
"""Fewer batches than this tell nothing."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One run at one rate, without its warm-up.

    `counts` (B,) are the requests that were due in each block, `misses` (B, K) how many
    of them missed each term of the objective. Neighbouring requests wait in the same
    queue, so that a block and not a request is what repeats independently.
    """

    rate: float
    """Requests a second that were offered."""
    counts: Floats
    misses: Floats
    block_seconds: float
    warmup_seconds: float = 0.0
    """What was left out at the start."""
    settled: bool = True
    """Whether the warm-up ended within the run."""

    @property
    def shares(self) -> Floats:
        """Share of requests that missed each term (K,)."""
        found: Floats = self.misses.sum(axis=0) / self.counts.sum()
        return found

    @property
    def requests(self) -> int:
        """Requests that count."""
        return int(self.counts.sum())


def observed(
    rate: float,
    due: Floats,
    misses: NDArray[np.bool_],
    *,
    start_seconds: float,
    end_seconds: float,
    block_seconds: float,
) -> Observation:
    """Requests due at `due` (N,) with their `misses` (N, K), as blocks of a run.

    What is due before `start_seconds` is left out; the blocks divide the rest evenly
    and are at least `block_seconds` long, so none is a short one.
    """
    blocks = max(int((end_seconds - start_seconds) / block_seconds), 1)
    edges = np.linspace(start_seconds, end_seconds, blocks + 1)
    kept = due >= start_seconds
    place = np.clip(np.searchsorted(edges, due[kept], "right") - 1, 0, blocks - 1)
    counts = np.bincount(place, minlength=blocks).astype(np.float64)
    missed = np.stack(
        [
            np.bincount(place, weights=column, minlength=blocks)
            for column in misses[kept].T.astype(np.float64)
        ],
        axis=1,
    ).astype(np.float64)
    return Observation(
        rate=rate,
        counts=counts,
        misses=missed,
        block_seconds=(end_seconds - start_seconds) / blocks,
        warmup_seconds=start_seconds,
    )


def observation(
    rate: float,
    requests: Requests,
    slo: Slo,
    *,
    seconds: float,
    block_seconds: float,
    least_warmup_seconds: float = 0.0,
) -> Observation:
    """The run of `requests` (in the order they were due) at `rate`, warm-up detected.

    Of a run that never settles the first half is left out; it says so.
    """
    waits = np.nan_to_num(requests.done - requests.intended, nan=seconds)
    cut = settled(waits)
    half = requests.intended.size // 2
    first = half if cut is None else cut
    start = float(requests.intended[first]) if first else 0.0
    start = max(start, least_warmup_seconds)
    found = observed(
        rate,
        requests.intended,
        slo.misses(requests),
        start_seconds=start,
        end_seconds=seconds,
        block_seconds=block_seconds,
    )
    if cut is not None:
        return found
    return Observation(
        found.rate,
        found.counts,
        found.misses,
        found.block_seconds,
        found.warmup_seconds,
        settled=False,
    )


def settled(values: NDArray[np.float64], batch: int = BATCH) -> int | None:
    """Return how many of the first values (N,) to leave out, by MSER-5.

    White (1997): of batch means y_1 … y_n leave out the d that minimise
    sum_(i > d) (y_i - mean)^2 / (n - d)^2. Where the minimum lies in the second half
    the series has not settled, and None is returned; 0 for series too short to judge.
    """
    count = values.size // batch
    if count < LEAST:
        return 0
    means = values[: count * batch].reshape(count, batch).mean(axis=1)
    left = np.arange(count, 0, -1)
    tail = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means * means)[::-1])[::-1]
    spread = np.maximum(squares - tail * tail / left, 0.0) / (left * left)
    cut = int(np.argmin(spread[: count - LEAST // 2]))
    return cut * batch if cut <= count // 2 else None
