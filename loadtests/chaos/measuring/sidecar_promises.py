"""Checks the sidecar's own guarantees while something else is broken.

It stays up, answers a scrape as fast as before, leaks nothing, and says what is so no
later than two of its probe intervals after it became so, until it is over, and then that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from exporter import catalogue
from exporter.histograms.quantiles import quantile_rank
from exporter.settings import Settings
from loadtests.chaos.measuring.observations import UP
from loadtests.chaos.measuring.signals import Condition, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from loadtests.chaos.measuring.observations import Evidence, Sample, Scrape
    from loadtests.chaos.measuring.recovery import Recovery, Span
    from loadtests.chaos.measuring.signals import Shown

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
_SCRAPE_FACTOR: Final = 3.0
_SCRAPE_SECONDS: Final = 0.1
"""Slower than before by the factor, and than this, is slow."""
_GROWTH_BYTES: Final = 8 * 2**20
_GROWTH_FDS: Final = 16
"""Descriptors that a hang may add: it fills the probes' connection pools, which stay, of
eight workers over two protocols. More than that, once the fault is over, is a leak.
"""


class SidecarPromises(Settings):
    """Guarantees of the sidecar: True if kept, False if not, None if unknown."""

    scrapes: int
    failed_scrapes: int
    away_seconds: float | None
    """The longest time between two scrapes that were answered."""
    stayed_up: bool | None
    """Every scrape was answered; None where the fault was its own death."""
    came_back: bool | None
    """The last scrapes were answered."""
    scrape_p95_before_seconds: float | None
    scrape_p95_since_seconds: float | None
    """95th percentile since the fault."""
    kept_scrape_time: bool | None
    resident_growth_bytes: int | None
    """Growth from before the fault to the end."""
    open_fds_growth: int | None
    leaked_nothing: bool | None
    probe_interval_seconds: float | None
    cleared_after_seconds: float | None
    """Time from the end of a fault, with users served again, to the end of its report in
    metrics; the longest of all faults."""
    told_the_truth: bool | None
    """True if for every fault its signals detected it, one of them reported trouble while
    no user was served, and two intervals later neither they nor the states of server,
    models and probes did."""

    @property
    def broken(self) -> tuple[str, ...]:
        """The guarantees that it did not keep, in words."""
        told = {
            "it did not stay up": self.stayed_up,
            "it did not come back": self.came_back,
            "its scrapes became slow": self.kept_scrape_time,
            "it leaked memory or descriptors": self.leaked_nothing,
            "it told what was not so for more than two probe intervals": self.told_the_truth,
        }
        return tuple(words for words, kept in told.items() if kept is False)


class Fault(NamedTuple):
    """A fault that the sidecar was to report."""

    span: Span
    recovery: Recovery | None
    required: Sequence[Shown]
    """The conditions that were to show it."""


def promises_of(evidence: Evidence, faults: Sequence[Fault]) -> SidecarPromises | None:
    """Return the guarantees that the sidecar kept; None where there was none."""
    scrapes = evidence.scrapes
    if not scrapes:
        return None
    start = faults[0].span.inject_seconds if faults else np.inf
    before = [scrape for scrape in scrapes if scrape.at_seconds < start]
    since = [scrape for scrape in scrapes if scrape.at_seconds >= start]
    kinds = {kind for fault in faults for kind in fault.span.kinds}
    failed = sum(not scrape.ok for scrape in scrapes)
    enough = len(scrapes) >= _LEAST
    fast = _p95(before), _p95(since)
    memory = _growth(before, since, "resident_bytes")
    descriptors = _growth(before, since, "open_fds")
    intervals = _intervals(evidence)
    reports = [_Reports.of(evidence, fault, intervals) for fault in faults]
    cleared = [one.cleared_after for one in reports if one.cleared_after is not None]
    return SidecarPromises(
        scrapes=len(scrapes),
        failed_scrapes=failed,
        away_seconds=_away(scrapes),
        stayed_up=None if not enough or kinds & KILLING else not failed,
        came_back=all(s.ok for s in scrapes[-_LEAST:]) if enough else None,
        scrape_p95_before_seconds=fast[0],
        scrape_p95_since_seconds=fast[1],
        kept_scrape_time=_kept_time(*fast),
        resident_growth_bytes=memory,
        open_fds_growth=descriptors,
        leaked_nothing=_leaked_nothing(memory, descriptors),
        probe_interval_seconds=max(intervals.values(), default=None),
        cleared_after_seconds=max(cleared, default=None),
        told_the_truth=_all([one.truthful for one in reports]),
    )


def _p95(scrapes: Sequence[Scrape]) -> float | None:
    times = sorted(scrape.seconds for scrape in scrapes if scrape.ok)
    if len(times) < _LEAST:
        return None
    return times[quantile_rank(len(times), 0.95) - 1]


def _kept_time(before: float | None, since: float | None) -> bool | None:
    if before is None or since is None:
        return None
    return since <= max(_SCRAPE_FACTOR * before, _SCRAPE_SECONDS)


def _away(scrapes: Sequence[Scrape]) -> float | None:
    """The longest time from one answered scrape to the next; to the end where none was."""
    answered = [s.at_seconds for s in scrapes if s.ok]
    if not answered:
        return None
    return float(np.max(np.diff([*answered, scrapes[-1].at_seconds]), initial=0.0))


def _growth(before: Sequence[Scrape], since: Sequence[Scrape], what: str) -> int | None:
    """Return the growth of the median, from before the fault to the last quarter since."""
    last = since[-max(len(since) // 4, _LEAST) :]
    values = [
        [getattr(scrape, what) for scrape in part if getattr(scrape, what) is not None]
        for part in (before, last)
    ]
    if min(map(len, values)) < _LEAST:
        return None
    first, end = (float(np.median(part)) for part in values)
    return int(end - first)


def _leaked_nothing(memory: int | None, descriptors: int | None) -> bool | None:
    if memory is None or descriptors is None:
        return None
    return memory <= _GROWTH_BYTES and descriptors <= _GROWTH_FDS


def _all(kept: Sequence[bool | None]) -> bool | None:
    if False in kept:
        return False
    return None if not kept or None in kept else True


def _intervals(evidence: Evidence) -> dict[str, float]:
    """The interval of each of its probes, as it said last."""
    mine = [s for s in evidence.samples if s.metric == catalogue.PROBE_INTERVAL.name]
    mine.sort(key=lambda s: s.at_seconds)
    return {s.labels.get("probe", ""): s.value for s in mine}


def _healed(span: Span, recovery: Recovery | None) -> float | None:
    """From when on it is untrue that something is wrong; None where it may still be so.

    Users may be served well while the fault is there: what it does to a probe is true.
    """
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


class _Reports(NamedTuple):
    """Reports of the sidecar about one fault, until the next one."""

    fault: Fault
    signals: Sequence[Shown]
    healed: float | None
    samples: Sequence[Sample]
    intervals: Mapping[str, float]

    @classmethod
    def of(
        cls, evidence: Evidence, fault: Fault, intervals: Mapping[str, float]
    ) -> _Reports:
        span = fault.span
        end = np.inf if span.next_seconds is None else span.next_seconds
        # `up` is reported about it, not by it.
        mine = [s for s in evidence.samples if s.metric != UP and s.at_seconds < end]
        trouble = (
            shown(mine, condition, span.inject_seconds, span.next_seconds)
            for condition in _trouble(mine)
        )
        held = (one for one in trouble if one.held_seconds is not None)
        healed = _healed(span, fault.recovery)
        return cls(fault, [*fault.required, *held], healed, mine, intervals)

    @property
    def cleared_after(self) -> float | None:
        ends = [
            s.cleared_seconds for s in self.signals if s.cleared_seconds is not None
        ]
        if self.healed is None or not ends:
            return None
        return max(max(ends) - self.healed, 0.0)

    @property
    def truthful(self) -> bool | None:
        """Untrue is what was seen so long after; what was seen to be over then may be older."""
        healed = self.healed
        if healed is None or not self.intervals:
            return None
        if any(one.held_seconds is None for one in self.signals):
            return None
        limits = [healed + INTERVALS * self._interval(one) for one in self.signals]
        late = any(
            (one.last_seconds or 0.0) > limit
            for one, limit in zip(self.signals, limits, strict=True)
        )
        if late or self._fell_silent:
            return False
        seen = max((s.at_seconds for s in self.samples), default=0.0)
        if self.signals and all(s.cleared_seconds is not None for s in self.signals):
            return True if seen >= healed else None
        last = max(limits, default=healed + INTERVALS * self._interval(None))
        return not self.signals if seen > last else None

    def _interval(self, one: Shown | None) -> float:
        """Return the interval of the probe that reports it; the longest if none is known."""
        probe = ((one and one.labels) or {}).get("probe", _SYNTHETIC)
        return self.intervals.get(probe, max(self.intervals.values()))

    @property
    def _fell_silent(self) -> bool:
        """Return whether trouble was no longer reported while no user was served.

        A server that is killed again and again is up in between.
        """
        recovery, span = self.fault.recovery, self.fault.span
        outage = None if recovery is None else recovery.outage
        required = [Condition.parse(one.condition) for one in self.fault.required]
        gauges = [condition for condition in required if not condition.increase]
        if outage is None or not gauges or "restart_loop" in span.kinds:
            return False
        ends = (outage.end_seconds, span.reverted_seconds, span.restarted_seconds)
        end = min(at for at in ends if at is not None)
        held = min(one.held_seconds or 0.0 for one in self.fault.required)
        start = max(outage.start_seconds, held)
        mine = [s for s in self.samples if start <= s.at_seconds < end]
        conditions = (*gauges, *_trouble(self.samples))
        reported = {
            s.at_seconds
            for s in mine
            if any(
                c.matches(s.metric, s.labels) and c.holds(s.value) for c in conditions
            )
        }
        longest = INTERVALS * max(self._interval(one) for one in self.fault.required)
        since: float | None = None
        for at in sorted({s.at_seconds for s in mine}):
            if at in reported:
                since = None
            elif since is None:
                since = at
            elif at - since > longest:
                return True
        return False


def _trouble(samples: Iterable[Sample]) -> Iterator[Condition]:
    """Yield conditions of trouble with server, models and each of the probes."""
    yield from _TROUBLE
    success = catalogue.PROBE_SUCCESS.name
    probes = {s.labels.get("probe", "") for s in samples if s.metric == success}
    for probe in sorted(probes):
        condition = Condition.parse(f"{success} == 0")
        yield replace(condition, matchers=(("probe", "=", probe),))
