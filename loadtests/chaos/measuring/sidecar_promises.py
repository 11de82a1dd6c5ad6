"""Whether the sidecar kept its own promises while something else broke.

It stays up, answers a scrape as fast as before, leaks nothing, and says what is so no
later than two of its probe intervals after it became so, then that it is over.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter import catalogue
from exporter.quantiles import quantile_rank
from exporter.settings import Settings
from loadtests.chaos.measuring.evidence import UP
from loadtests.chaos.measuring.shown import shown
from loadtests.chaos.running.conditions import Condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.chaos.measuring.evidence import Evidence, Sample, Scrape
    from loadtests.chaos.measuring.recovery import Recovery, Span
    from loadtests.chaos.measuring.shown import Shown

WATCHED: Final = frozenset({catalogue.PROBE_INTERVAL.name})
"""Metrics that are wanted of every sidecar, beside what is to be detected."""
KILLING: Final = frozenset({"kill_sidecar"})
"""Faults of the sidecar itself: it has to come back, not to stay."""
INTERVALS: Final = 2
_TROUBLE: Final = tuple(
    Condition.parse(f"{metric.name} == 0")
    for metric in (
        catalogue.UP,
        catalogue.MODEL_READY,
        catalogue.MODEL_SERVING,
        catalogue.PROBE_SUCCESS,
    )
)
_LEAST: Final = 3
"""Scrapes, below which nothing is said about them."""
_SCRAPE_FACTOR: Final = 3.0
_SCRAPE_SECONDS: Final = 0.1
"""Slower than before by the factor, and than this, is slow."""
_GROWTH_BYTES: Final = 8 * 2**20
_GROWTH_FDS: Final = 16
"""A hang fills the pools of the probes' connections, which stay: eight workers over two
protocols. More than that, once the fault is over, is a leak."""


class SidecarPromises(Settings):
    """Each is True where it was kept, False where not, None where it cannot be told."""

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
    """From the fault on."""
    kept_scrape_time: bool | None
    resident_growth_bytes: int | None
    """From before the fault to the end."""
    open_fds_growth: int | None
    leaked_nothing: bool | None
    probe_interval_seconds: float | None
    cleared_after_seconds: float | None
    """From when the fault was gone and users were served again to when the metrics said
    so."""
    told_the_truth: bool | None
    """What was to show the fault did, and two intervals after it neither that nor what it
    says of server, models and probes spoke of trouble."""

    @property
    def broken(self) -> tuple[str, ...]:
        """What it did not keep, in words."""
        told = {
            "it did not stay up": self.stayed_up,
            "it did not come back": self.came_back,
            "its scrapes became slow": self.kept_scrape_time,
            "it leaked memory or descriptors": self.leaked_nothing,
            "it told what was not so for more than two probe intervals": self.told_the_truth,
        }
        return tuple(words for words, kept in told.items() if kept is False)


def promises_of(
    evidence: Evidence,
    faults: Sequence[Span],
    required: Sequence[Shown],
    recovery: Recovery | None,
) -> SidecarPromises | None:
    """What the sidecar kept; None where there was none.

    `required` are the conditions that were to show the last fault, `recovery` is of it.
    """
    scrapes = evidence.scrapes
    if not scrapes:
        return None
    start = faults[0].inject_seconds if faults else np.inf
    before = [scrape for scrape in scrapes if scrape.at_seconds < start]
    since = [scrape for scrape in scrapes if scrape.at_seconds >= start]
    kinds = {kind for span in faults for kind in span.kinds}
    failed = sum(not scrape.ok for scrape in scrapes)
    enough = len(scrapes) >= _LEAST
    fast = _p95(before), _p95(since)
    memory = _growth(before, since, "resident_bytes")
    descriptors = _growth(before, since, "open_fds")
    interval = _interval(evidence)
    healed = _healed(faults[-1], recovery) if faults else None
    told = [*required, *(_trouble(evidence, faults[-1]) if faults else ())]
    cleared = _cleared_after(told, healed)
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
        probe_interval_seconds=interval,
        cleared_after_seconds=cleared,
        told_the_truth=_truthful(told, healed, interval, evidence.samples),
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
    """From the median before the fault to that of the last quarter since."""
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


def _interval(evidence: Evidence) -> float | None:
    """The longest interval of its probes, as it said last."""
    mine = [s for s in evidence.samples if s.metric in WATCHED]
    mine.sort(key=lambda s: s.labels.get("probe", ""))
    last = [
        max(group, key=lambda s: s.at_seconds).value
        for _, group in groupby(mine, key=lambda s: s.labels.get("probe", ""))
    ]
    return max(last, default=None)


def _healed(span: Span, recovery: Recovery | None) -> float | None:
    """From when on it is untrue that something is wrong; None where it may still be so.

    Users may be served well while the fault is there: what it does to a probe is true.
    """
    if recovery is None or recovery.state not in {"recovered", "unaffected"}:
        return None
    # A killed server is well again when it was started anew, whatever is undone later.
    gone = (
        span.reverted_seconds
        if span.restarted_seconds is None
        else span.restarted_seconds
    )
    if recovery.recovered_seconds is None or gone is None:
        return gone
    return max(recovery.recovered_seconds, gone)


def _trouble(evidence: Evidence, span: Span) -> list[Shown]:
    """What it said of server, models and probes, where that was not so before."""
    found = (
        shown(evidence.samples, condition, span.inject_seconds, span.next_seconds)
        for condition in _TROUBLE
    )
    return [one for one in found if one.held_seconds is not None]


def _cleared_after(told: Sequence[Shown], healed: float | None) -> float | None:
    ends = [one.cleared_seconds for one in told if one.cleared_seconds is not None]
    return None if healed is None or not ends else max(max(ends) - healed, 0.0)


def _truthful(
    told: Sequence[Shown],
    healed: float | None,
    interval: float | None,
    samples: Sequence[Sample],
) -> bool | None:
    """Untrue is what was seen so long after; what was seen to be over then may be older."""
    if healed is None or interval is None:
        return None
    if any(one.held_seconds is None for one in told):
        return None
    limit = healed + INTERVALS * interval
    if any((one.last_seconds or 0.0) > limit for one in told):
        return False
    # `up` is what is said of it, not by it.
    seen = max((s.at_seconds for s in samples if s.metric != UP), default=0.0)
    if told and all(one.cleared_seconds is not None for one in told):
        return True
    if seen <= limit:
        return None
    return not told
