"""One run at one rate, judged by an objective in blocks of time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.numerics import dependence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from loadtests.load_objective import Slo
    from loadtests.result import Requests

    Floats = NDArray[np.float64]

LEAST: Final = 10
"""Blocks below which a warm-up cannot be detected."""
LEAST_RUNS: Final = 5
"""Runs below which a burst at the start of one could pass for a warm-up of all."""
BLOCK_SECONDS: Final = 0.25
_SIGMAS: Final = 3.0
LEAST_WARMUP_SECONDS: Final = 0.5
"""The start of a run never counts: the queue is empty then."""


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
    """Time at the start that was left out."""
    settled: bool = True
    """True if the warm-up ended in the first half."""
    waits: Floats = field(default_factory=lambda: np.empty(0))
    """Mean seconds (B,) from the intended send to the answer, NaN of a block without
    requests; empty where no warm-up is searched."""

    def without(self, blocks: int, *, settled: bool) -> Observation:
        """Return the run without its first blocks; at least half of them are kept."""
        first = min(blocks, self.counts.size // 2)
        if not self.counts[first:].any():
            return self
        return replace(
            self,
            counts=self.counts[first:],
            misses=self.misses[first:],
            waits=self.waits[first:],
            warmup_seconds=self.warmup_seconds + first * self.block_seconds,
            settled=settled,
        )

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
    """Return requests due at `due` (N,) with their `misses` (N, K), as blocks of a run.

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
    rate: float, requests: Requests, slo: Slo, *, seconds: float
) -> Observation:
    """Return the run of `requests` (in the order they were due) at `rate`.

    Only `LEAST_WARMUP_SECONDS` are left out, or a quarter of a shorter run. What more
    is warm-up shows in several runs only: `settled_alike`.
    """
    found = observed(
        rate,
        requests.intended,
        slo.misses(requests),
        start_seconds=min(LEAST_WARMUP_SECONDS, seconds / 4),
        end_seconds=seconds,
        block_seconds=BLOCK_SECONDS,
    )
    kept = requests.intended >= found.warmup_seconds
    waits = np.nan_to_num(requests.done - requests.intended, nan=seconds)[kept]
    place = (requests.intended[kept] - found.warmup_seconds) / found.block_seconds
    blocks = found.counts.size
    place = np.clip(place.astype(np.int64), 0, blocks - 1)
    with np.errstate(invalid="ignore"):
        means = np.bincount(place, waits, blocks) / np.bincount(place, minlength=blocks)
    return replace(found, waits=means)


def settled_alike(runs: Sequence[Observation]) -> list[Observation]:
    """Return the runs, all without the same warm-up.

    A slow start of all runs is warm-up; a slow start of one run is a burst, and leaving
    it out would make the server look better. So the warm-up is searched (`settled`) in
    the median over all runs of the waits of each block, relative to the mean of their
    run, and is left out where it stands out. Where the median never settles, half of each
    run is left out. Fewer than `LEAST_RUNS` runs are returned unchanged.
    """
    known = [run.waits / np.nanmean(run.waits) for run in runs if _has_waits(run)]
    if len(known) < LEAST_RUNS:
        return list(runs)
    longest = sorted(waits.size for waits in known)[-LEAST_RUNS]
    aligned = np.full((len(known), longest), np.nan)
    for row, waits in zip(aligned, known, strict=True):
        row[: waits.size] = waits[:longest]
    # At a low rate no run may have had a request in some block.
    held = np.flatnonzero(np.isfinite(aligned).any(axis=0))
    profile = np.nanmedian(aligned[:, held], axis=0)
    cut = settled(profile)
    first = profile.size // 2 if cut is None else cut
    if not _stands_out(profile, first):
        return list(runs)
    return [run.without(int(held[first]), settled=cut is not None) for run in runs]


def _stands_out(profile: Floats, first: int) -> bool:
    """Return True if the first values differ from the rest by more than 3 sigma.

    MSER alone leaves out some of 22 blocks without a warm-up in half of all cases.
    """
    rest = profile[first:]
    if not first or rest.size < 2:  # noqa: PLR2004
        return False
    error = rest.std(ddof=1) * np.sqrt(1.0 / first + 1.0 / rest.size)
    gap = abs(profile[:first].mean() - rest.mean())
    return bool(gap > dependence.student_deviation(_SIGMAS, rest.size - 1) * error)


def _has_waits(run: Observation) -> bool:
    return bool(np.isfinite(run.waits).sum() >= LEAST and np.nanmax(run.waits) > 0)


def settled(values: Floats) -> int | None:
    """Return how many of the first values (N,) to leave out, by MSER.

    White (1997): of y_1 … y_n leave out the d that minimise sum_(i > d) (y_i - mean)^2 /
    (n - d)^2. Where the minimum lies in the second half the series has not settled, and
    None is returned; 0 for series too short to judge.
    """
    count = values.size
    if count < LEAST:
        return 0
    left = np.arange(count, 0, -1)
    tail = np.cumsum(values[::-1])[::-1]
    squares = np.cumsum((values * values)[::-1])[::-1]
    spread = np.maximum(squares - tail * tail / left, 0.0) / (left * left)
    cut = int(np.argmin(spread[: count - LEAST // 2]))
    return cut if cut <= count // 2 else None
