"""Checks the sidecar's own guarantees while something else is broken.

It stays up, and no later than two of its probe intervals after a fault is gone and users
are served again it speaks of no trouble any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from exporter import catalogue
from exporter.settings import Settings
from loadtests.chaos.measuring.observations import UP
from loadtests.chaos.measuring.signals import Condition, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loadtests.chaos.measuring.findings import FaultFindings
    from loadtests.chaos.measuring.observations import Evidence, Series

KILLING: Final = frozenset({"kill_sidecar"})
"""Faults of the sidecar itself: it has to come back, not to stay."""
_ENDING: Final = frozenset({"kill_server", "restart_loop"})
"""Faults that end with the server's next start, whatever is undone later."""
INTERVALS: Final = 2
_SYNTHETIC: Final = "synthetic"
"""The probe by which models are called serving."""
_TROUBLE: Final = tuple(
    Condition.parse(f"{metric.name} == 0")
    for metric in (catalogue.UP, catalogue.MODEL_READY, catalogue.MODEL_SERVING)
)
_LEAST: Final = 3
"""Scrapes, below which nothing is said about them."""


class SidecarPromises(Settings):
    """Guarantees of the sidecar: True if kept, False if not, None if unknown."""

    scrapes: int
    failed_scrapes: int
    stayed_up: bool | None
    """Every scrape was answered; where the fault was its own death, the last ones were."""
    probe_interval_seconds: float | None
    """The longest of its probes' intervals."""
    over_after_seconds: float | None
    """Longest time from the end of a fault, with users served again, to when it was last
    seen to speak of trouble."""
    over_in_time: bool | None
    """True if that was within two intervals for every fault."""

    @property
    def broken(self) -> tuple[str, ...]:
        """The guarantees that it did not keep, in words."""
        told = {
            "it did not stay up": self.stayed_up,
            "it spoke of trouble for more than two probe intervals after the fault was over": (
                self.over_in_time
            ),
        }
        return tuple(words for words, kept in told.items() if kept is False)


def promises_of(
    evidence: Evidence, faults: Sequence[FaultFindings]
) -> SidecarPromises | None:
    """Return the guarantees that the sidecar kept; None where there was none."""
    up = evidence.of_metric(UP)
    if not up:
        return None
    scrapes = [value == 1 for value in up[0].values]
    intervals = _intervals(evidence)
    ends = [_over_after(evidence, fault, intervals) for fault in faults]
    in_time = [kept for _, kept in ends]
    kept = None if None in in_time or not in_time else True
    return SidecarPromises(
        scrapes=len(scrapes),
        failed_scrapes=scrapes.count(False),
        stayed_up=_stayed_up(scrapes, faults),
        probe_interval_seconds=max(intervals.values(), default=None),
        over_after_seconds=max((s for s, _ in ends if s is not None), default=None),
        over_in_time=False if False in in_time else kept,
    )


def _stayed_up(scrapes: Sequence[bool], faults: Iterable[FaultFindings]) -> bool | None:
    if len(scrapes) < _LEAST:
        return None
    killed = any(KILLING & set(fault.span.kinds) for fault in faults)
    return all(scrapes[-_LEAST:] if killed else scrapes)


def _intervals(evidence: Evidence) -> dict[str, float]:
    """The interval of each of its probes, as it said last."""
    mine = evidence.of_metric(catalogue.PROBE_INTERVAL.name)
    return {one.labels.get("probe", ""): one.values[-1] for one in mine}


def _healed(fault: FaultFindings) -> float | None:
    """From when on it is untrue that something is wrong; None where it may still be so.

    Users may be served well while the fault is there: what it does to a probe is true.
    """
    span, recovery = fault.span, fault.recovery
    if recovery is None or recovery.state not in {"recovered", "unaffected"}:
        return None
    gone = span.reverted_seconds
    if span.restarted_seconds is not None:
        if set(span.kinds) <= _ENDING:
            gone = span.restarted_seconds
        elif gone is not None:
            gone = max(gone, span.restarted_seconds)
    if recovery.recovered_seconds is None or gone is None:
        return gone
    return max(recovery.recovered_seconds, gone)


def _over_after(
    evidence: Evidence, fault: FaultFindings, intervals: dict[str, float]
) -> tuple[float | None, bool | None]:
    """Seconds from the end of a fault to the last word of trouble; whether in time."""
    healed, span = _healed(fault), fault.span
    if healed is None or not intervals:
        return None, None
    # `up` is reported about it, not by it.
    mine = [one for one in evidence.series if one.metric != UP]
    usual = intervals.get(_SYNTHETIC, max(intervals.values()))
    after, in_time, limit = None, True, INTERVALS * usual
    for condition in (*_required(fault), *_trouble(mine)):
        one = shown(mine, condition, span.inject_seconds, span.next_seconds)
        if one.last_seconds is not None:
            late = max(one.last_seconds - healed, 0.0)
            after = max(after or 0.0, late)
            allowed = INTERVALS * intervals.get(one.labels.get("probe", ""), usual)
            in_time &= late <= allowed
            limit = max(limit, allowed)
    seen = max((one.at_seconds[-1] for one in mine), default=0.0)
    if span.next_seconds is not None:
        seen = min(seen, span.next_seconds)
    if in_time and seen <= healed + limit:
        return after, None
    return after, in_time


def _required(fault: FaultFindings) -> Iterator[Condition]:
    """Yield the conditions on metrics that had to show it."""
    for signal in fault.signals:
        if signal.kind == "metric":
            yield Condition.parse(signal.name)


def _trouble(series: Iterable[Series]) -> Iterator[Condition]:
    """Yield conditions of trouble with server, models and each of the probes."""
    yield from _TROUBLE
    success = catalogue.PROBE_SUCCESS.name
    probes = {one.labels.get("probe", "") for one in series if one.metric == success}
    for probe in sorted(probes):
        condition = Condition.parse(f"{success} == 0")
        yield replace(condition, matchers=(("probe", "=", probe),))
