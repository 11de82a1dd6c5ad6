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
    from loadtests.chaos.measuring.observations import Evidence, Sample, Scrape

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
            "it spoke of trouble for more than two probe intervals after it was over": (
                self.over_in_time
            ),
        }
        return tuple(words for words, kept in told.items() if kept is False)


def promises_of(
    evidence: Evidence, faults: Sequence[FaultFindings]
) -> SidecarPromises | None:
    """Return the guarantees that the sidecar kept; None where there was none."""
    scrapes = evidence.scrapes
    if not scrapes:
        return None
    intervals = _intervals(evidence)
    ends = [_over_after(evidence, fault, intervals) for fault in faults]
    in_time = [kept for _, kept in ends]
    kept = None if None in in_time or not in_time else True
    return SidecarPromises(
        scrapes=len(scrapes),
        failed_scrapes=sum(not scrape.ok for scrape in scrapes),
        stayed_up=_stayed_up(scrapes, faults),
        probe_interval_seconds=max(intervals.values(), default=None),
        over_after_seconds=max((s for s, _ in ends if s is not None), default=None),
        over_in_time=False if False in in_time else kept,
    )


def _stayed_up(
    scrapes: Sequence[Scrape], faults: Iterable[FaultFindings]
) -> bool | None:
    if len(scrapes) < _LEAST:
        return None
    killed = any(KILLING & set(fault.span.kinds) for fault in faults)
    return all(scrape.ok for scrape in (scrapes[-_LEAST:] if killed else scrapes))


def _intervals(evidence: Evidence) -> dict[str, float]:
    """The interval of each of its probes, as it said last."""
    mine = [s for s in evidence.samples if s.metric == catalogue.PROBE_INTERVAL.name]
    mine.sort(key=lambda s: s.at_seconds)
    return {s.labels.get("probe", ""): s.value for s in mine}


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
    end = float("inf") if span.next_seconds is None else span.next_seconds
    # `up` is reported about it, not by it.
    mine = [s for s in evidence.samples if s.metric != UP and s.at_seconds < end]
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
    seen = max((s.at_seconds for s in mine), default=0.0)
    if in_time and seen <= healed + limit:
        return after, None
    return after, in_time


def _required(fault: FaultFindings) -> Iterator[Condition]:
    """Yield the conditions on metrics that had to show it."""
    for signal in fault.signals:
        if signal.kind == "metric":
            yield Condition.parse(signal.name)


def _trouble(samples: Iterable[Sample]) -> Iterator[Condition]:
    """Yield conditions of trouble with server, models and each of the probes."""
    yield from _TROUBLE
    success = catalogue.PROBE_SUCCESS.name
    probes = {s.labels.get("probe", "") for s in samples if s.metric == success}
    for probe in sorted(probes):
        condition = Condition.parse(f"{success} == 0")
        yield replace(condition, matchers=(("probe", "=", probe),))
