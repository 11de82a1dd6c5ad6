"""The sidecar's footprint over a soak, and the test for its growth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from exporter.settings import Settings
from loadtests.chaos.measuring.observations import UP
from loadtests.chaos.measuring.polling import OPEN_FDS, RESIDENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.chaos.measuring.observations import Evidence, Series

SOAK: Final = "Users are served again after each fault, and nothing grows."
"""Description of the experiment of a soak, by which its journal is known."""
GROWTH_BYTES_PER_HOUR: Final = 2e6
"""Growth whose interval lies above this, in the second half too, is a leak."""
_WARM_UP_SHARE: Final = 0.25
_BLOCK_SECONDS: Final = 60.0
"""Scrapes of this time count as one value, their median: memory goes in steps."""
_LEAST_BLOCKS: Final = 8
_LEAST_SECONDS: Final = 600.0
"""Shorter than that after the warm-up, an hourly slope means nothing."""
_FLAT: Final = 4
"""Descriptors more than after the warm-up: connections come and go."""


class Soak(Settings):
    """The sidecar's footprint over a soak, without the warm-up. None is unknown."""

    faults: int
    watched_seconds: float
    resident_bytes_first: float | None
    resident_bytes_last: float | None
    growth_bytes_per_hour: float | None
    """Mean growth by the minute, from the first block to the last."""
    growth_low: float | None
    growth_high: float | None
    """Its 95 % interval: Student's, of the growth by the minute.

    Memory grows in steps that stay, so the steps are independent of each other and the
    residuals of a line are not: an interval of a line's slope (like Sen's) holds the true
    growth in two of five cases."""
    growth_late: float | None
    """The same growth over the second half. What fills (windows of five minutes, arenas)
    reaches its limit, and growth slows; a leak continues."""
    open_fds_growth: int | None
    scrapes: int
    """Of the whole soak."""
    failed_scrapes: int

    @property
    def broken(self) -> tuple[str, ...]:
        """Reasons why the soak failed."""
        low, late = self.growth_low, self.growth_late
        problems = []
        if (
            low is not None
            and late is not None
            and min(low, late) > GROWTH_BYTES_PER_HOUR
        ):
            problems.append(
                f"resident memory grew by at least {low / 1e6:.2g} MB an hour, and by "
                f"{late / 1e6:.2g} in the second half; the limit is "
                f"{GROWTH_BYTES_PER_HOUR / 1e6:g}"
            )
        if self.open_fds_growth is not None and self.open_fds_growth > _FLAT:
            problems.append(
                f"{self.open_fds_growth} descriptors more than after the warm-up"
            )
        if not self.scrapes:
            problems.append("the sidecar was never scraped")
        elif self.failed_scrapes:
            problems.append(
                "the sidecar did not stay up: "
                f"{self.failed_scrapes} of {self.scrapes} scrapes failed"
            )
        return tuple(problems)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Reasons why the soak has no verdict."""
        limit, high = GROWTH_BYTES_PER_HOUR, self.growth_high
        if self.broken or (high is not None and high <= limit):
            return ()
        want = f"growth of more than {limit / 1e6:g} MB an hour"
        return (f"{want} is not excluded: take longer, with --minutes",)


def footprint_of(evidence: Evidence) -> Soak | None:
    """Return the footprint if the experiment is a soak; else None."""
    return soaked(evidence) if evidence.experiment.get("description") == SOAK else None


def soaked(evidence: Evidence) -> Soak:
    """Return the sidecar's footprint over a soak."""
    up = evidence.of_metric(UP)
    end = up[0].at_seconds[-1] if up else 0.0
    scrapes = up[0].values if up else ()
    warm = _WARM_UP_SHARE * end
    resident = _blocks(evidence.of_metric(RESIDENT), warm)
    descriptors = _blocks(evidence.of_metric(OPEN_FDS), warm)
    slope, late = _slope(resident), None
    if slope[0] is not None:
        late = _slope_of(resident[len(resident) // 2 :])[0]
    return Soak(
        faults=sum(event.what == "injected" for event in evidence.events),
        watched_seconds=end - warm,
        resident_bytes_first=float(resident[0, 1]) if len(resident) else None,
        resident_bytes_last=float(resident[-1, 1]) if len(resident) else None,
        growth_bytes_per_hour=slope[0],
        growth_low=slope[1],
        growth_high=slope[2],
        growth_late=late,
        open_fds_growth=_rise(descriptors),
        scrapes=len(scrapes),
        failed_scrapes=scrapes.count(0),
    )


def _rise(blocks: np.ndarray) -> int | None:
    """Return the rise from the first quarter of the blocks to the last, by medians."""
    if len(blocks) < 2:  # noqa: PLR2004 - a first and a last
        return None
    quarter = max(1, len(blocks) // 4)
    first, last = blocks[:quarter, 1], blocks[-quarter:, 1]
    return round(float(np.median(last) - np.median(first)))


def _blocks(series: Sequence[Series], since: float) -> np.ndarray:
    """(N, 2): the middle of each block in seconds, and the median of its values."""
    blocks: dict[int, list[float]] = {}
    for one in series:
        for at, value in zip(one.at_seconds, one.values, strict=True):
            if at >= since:
                blocks.setdefault(int(at // _BLOCK_SECONDS), []).append(value)
    rows = [
        ((block + 0.5) * _BLOCK_SECONDS, float(np.median(found)))
        for block, found in sorted(blocks.items())
    ]
    return np.array(rows).reshape(-1, 2)


def _slope(blocks: np.ndarray) -> tuple[float | None, float | None, float | None]:
    """Bytes an hour with their interval; None where they cover too short a time."""
    if len(blocks) < _LEAST_BLOCKS or blocks[-1, 0] - blocks[0, 0] < _LEAST_SECONDS:
        return None, None, None
    return _slope_of(blocks)


def _slope_of(blocks: np.ndarray) -> tuple[float, float, float]:
    from scipy.stats import t  # noqa: PLC0415 - heavy, only here

    hours, grown = np.diff(blocks[:, 0]) / 3600.0, np.diff(blocks[:, 1])
    mean = float(grown.sum() / hours.sum())
    # Over a longer gap, where a block is missing, more may come together.
    errors = (grown - mean * hours) ** 2
    freedom = len(grown) - 1
    spread = np.sqrt(errors.sum() * len(grown) / freedom) / hours.sum()
    half = float(t.ppf(0.975, freedom) * spread)
    return mean, mean - half, mean + half
