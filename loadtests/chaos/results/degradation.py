"""Service over the strength of a fault, and the strongest one it withstands."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from exporter.settings import Settings
from loadtests.chaos.results.repeated import Repetitions, repeated, repetitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.chaos.measuring.findings import Findings
    from loadtests.chaos.measuring.served import Served

_Z: Final = 1.959963984540054
"""The normal distribution's quantile of 97.5 %."""


class Service(Settings):
    """What users got of all repetitions in one phase."""

    requests: int
    availability: float | None
    """Right answers of all these requests."""
    low: float | None
    """Its 95 % interval, as if requests failed independently (Wilson 1927)."""
    high: float | None
    p50: float | None
    """Median over the repetitions of their quantile, in seconds."""
    p95: float | None


class Point(Service):
    """While the fault was there, with one strength."""

    strength: float
    deviated: int
    """Repetitions in which the hypothesis did not hold."""
    repeated: Repetitions


class Curve(Settings):
    """Service over the strength of a fault, from the mildest on."""

    setting: str
    without: Service
    """Before the fault: none of it."""
    points: tuple[Point, ...]
    stands: float | None
    """The strongest that it stood in every repetition, as did all milder ones."""
    breaks: float | None
    """The mildest that it did not stand in some repetition."""
    falls: bool
    """Whether no stronger fault did less, beyond what chance does."""


def curve(setting: str, found: Sequence[Findings]) -> Curve | None:
    """The curve of a sweep, strengths in the order in which they were run first.

    An experiment lists its strengths from the mildest on: a smaller quota is a stronger
    fault. A repetition stood the fault if the hypothesis held all the while. None where
    there are not two strengths.
    """
    groups: dict[float, list[Findings]] = {}
    for one in found:
        if one.strength is not None:
            groups.setdefault(one.strength, []).append(one)
    if len(groups) < 2:  # noqa: PLR2004 - no curve through one point
        return None
    points = tuple(_point(strength, group) for strength, group in groups.items())
    broken = [i for i, point in enumerate(points) if point.deviated]
    first = broken[0] if broken else len(points)
    return Curve(
        setting=setting,
        without=Service(
            **_service([p for one in found if (p := one.before) is not None])
        ),
        points=points,
        stands=points[first - 1].strength if first else None,
        breaks=points[first].strength if broken else None,
        falls=not any(_rises(a, b) for a, b in pairwise(points)),
    )


def _rises(milder: Point, stronger: Point) -> bool:
    """Return whether availability is higher for sure: the intervals lie apart."""
    if milder.high is None or stronger.low is None:
        return False
    return stronger.low > milder.high


def _point(strength: float, found: Sequence[Findings]) -> Point:
    return Point(
        strength=strength,
        deviated=sum(one.deviated for one in found),
        repeated=repetitions(found),
        **_service([p for one in found if (p := one.during) is not None]),
    )


def _service(phases: Sequence[Served]) -> dict[str, Any]:
    requests = sum(phase.requests for phase in phases)
    right = sum(phase.right for phase in phases)
    low, high = wilson(right, requests)
    return {
        "requests": requests,
        "availability": right / requests if requests else None,
        "low": low,
        "high": high,
        "p50": _median([phase.p50 for phase in phases]),
        "p95": _median([phase.p95 for phase in phases]),
    }


def _median(values: Sequence[float | None]) -> float | None:
    found = repeated(values)
    return None if found is None else found.median


def wilson(right: int, count: int) -> tuple[float | None, float | None]:
    """95 % score interval of a share (Wilson 1927); unknown for no requests.

    Example:
        >>> [round(end, 3) for end in wilson(9, 10)]
        [0.596, 0.982]
    """
    if not count:
        return None, None
    share, z2 = right / count, _Z * _Z
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    spread = share * (1 - share) / count + z2 / (4 * count * count)
    reach = _Z / (1 + z2 / count) * math.sqrt(spread)
    return max(middle - reach, 0.0), min(middle + reach, 1.0)
