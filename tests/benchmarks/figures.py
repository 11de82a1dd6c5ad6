"""What a benchmark hands back: one figure, its goal, and how far it can be trusted."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED: Final = 20_261
Figure = dict[str, Any]
_RESAMPLES: Final = 4000
_TAIL: Final = 0.025


class Skipped(Exception):  # noqa: N818 - a finding, not an error
    """A part is missing on this machine; the message says which and how to get it."""


def at_most(
    name: str,
    value: float,
    unit: str,
    goal: float | None,
    *,
    measured: str,
    n: int,
    **more: object,
) -> Figure:
    """A figure that should not be above `goal`; `ok` is None where there is none.

    `measured` says in a sentence what was measured and how; `n` is the number of
    measurements; `more` holds peer, ratio, ci_low, ci_high, seed.
    """
    rounded = _rounded(value)
    return {
        "name": name,
        "value": rounded,
        "unit": unit,
        "goal": goal,
        "ok": None if goal is None else rounded <= goal,
        "n": n,
        **{key: _rounded(item) for key, item in more.items()},
        "measured": measured,
    }


def median(values: Sequence[float]) -> dict[str, float]:
    """`value`, `ci_low` and `ci_high`: the median and its 95 % interval, whatever the
    distribution: the order statistics of rank l and n + 1 - l, with l the largest for
    which a binomial(n, 1/2) is below l in at most 2.5 % of cases. Fewer than 6 values
    carry no such interval; theirs is the range."""
    ordered = sorted(values)
    count = len(ordered)
    rank, below = 0, 1.0
    while rank < count / 2 and below <= _TAIL * 2.0**count:
        rank += 1
        below += math.comb(count, rank)
    rank = max(rank, 1)
    return {
        "value": float(np.median(ordered)),
        "ci_low": ordered[rank - 1],
        "ci_high": ordered[-rank],
    }


def median_ratio(
    ours: Sequence[float], theirs: Sequence[float], seed: int = SEED
) -> dict[str, float]:
    """`value`, `ci_low`, `ci_high`: the median of the ratios of pairs measured one
    right after the other, and its 95 % percentile bootstrap interval over the pairs."""
    ratios = np.asarray(ours, np.float64) / np.asarray(theirs, np.float64)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, ratios.size, size=(_RESAMPLES, ratios.size))
    low, high = np.percentile(np.median(ratios[drawn], axis=1), (2.5, 97.5))
    return {
        "value": float(np.median(ratios)),
        "ci_low": float(low),
        "ci_high": float(high),
    }


def versions(*distributions: str, **more: str) -> dict[str, str]:
    """Python, tritonwatch and the named distributions, by version."""
    return {
        "python": platform.python_version(),
        "tritonwatch": importlib.metadata.version("tritonwatch"),
        **{name: importlib.metadata.version(name) for name in distributions},
        **more,
    }


def require(*, found: bool, what: str, how: str) -> None:
    """Go on only with that part; in CI a missing part is a failure, not a gap.

    Raises:
        Skipped: it is not here.
        RuntimeError: it is not here, and this is CI.
    """
    if found:
        return
    if os.environ.get("CI") == "true":
        raise RuntimeError(f"found no {what}; in CI it has to be there: {how}")
    raise Skipped(f"found no {what}: {how}")


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
