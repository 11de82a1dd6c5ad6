"""Requests as their users saw them, between the faults of an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exporter.settings import Settings
from loadtests.errors import PlanError
from loadtests.result import Outcome, quantile_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from loadtests.chaos.measuring.observations import Event
    from loadtests.result import Floats, RunResult

    Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Answers:
    """The requests of an open loop as their users saw them, in the order they were due."""

    due: Floats
    """(N,) seconds from the load's start."""
    ended: Floats
    """(N,) when the user knew; infinite where it is not known to have ended."""
    right: Mask
    unsent: Mask
    """Requests that the sender failed to send: the server's answer is unknown."""
    outcome: NDArray[np.uint8]
    timeout_seconds: float
    until_seconds: float
    """The load was sent until then."""

    @property
    def latency(self) -> Floats:
        """Seconds (N,) a user waited; the timeout for requests without a correct answer."""
        waited = np.minimum(self.ended - self.due, self.timeout_seconds)
        return np.where(self.right, waited, self.timeout_seconds)


def answers_of(result: RunResult) -> Answers:
    """Return a run's answers from the users' point of view.

    Raises:
        PlanError: it was a closed loop, which sends nothing while the server hangs.
    """
    if result.about.mode != "open":
        raise PlanError(
            "found a closed loop; recovery can be measured with an open loop only"
        )
    requests = result.requests
    sent = np.isfinite(requests.sent) | (requests.outcome == Outcome.REJECTED)
    known = requests
    if result.about.interrupted:
        last = requests.intended[sent].max(initial=-np.inf)
        known = requests.where(requests.intended <= last)
    unsent = known.outcome == Outcome.UNSENT
    ended = np.where(known.outcome == Outcome.REJECTED, known.intended, known.done)
    return Answers(
        due=known.intended,
        ended=np.where(np.isfinite(ended), ended, np.inf),
        right=known.outcome == Outcome.OK,
        unsent=unsent,
        outcome=known.outcome,
        timeout_seconds=result.about.timeout_seconds,
        until_seconds=float(known.intended.max(initial=0.0)),
    )


class Outage(Settings):
    """The longest time in which users sent requests and none got a correct answer."""

    start_seconds: float
    """Due time of the first of them."""
    end_seconds: float
    """Time of the next correct answer; without one, when the last request was given up.
    """
    ended: bool

    @property
    def seconds(self) -> float:
        """Its length in seconds."""
        return self.end_seconds - self.start_seconds


def outage_of(answers: Answers, chosen: Mask, since_seconds: float) -> Outage | None:
    """Return the longest outage among the chosen requests, from `since_seconds` on.

    Time without requests does not count: an outage begins when its first request was
    due. None without requests.
    """
    due, ended = answers.due[chosen], answers.ended[chosen]
    if not due.size:
        return None
    given_up = np.minimum(ended, due + answers.timeout_seconds)
    rights = np.sort(ended[answers.right[chosen]])
    rights = rights[rights > since_seconds]
    last = float(given_up.max())
    edges = np.unique(
        np.concatenate(([since_seconds], rights, [max(last, since_seconds)]))
    )
    gaps = np.diff(edges)
    best: Outage | None = None
    for place in np.argsort(-gaps, kind="stable").tolist():
        # Later gaps are shorter, and an outage is no longer than its gap.
        if best is not None and gaps[place] <= best.seconds:
            break
        low, high = float(edges[place]), float(edges[place + 1])
        there = (due < high) & (given_up > low)
        if not there.any():
            continue
        start = max(low, float(due[there].min()))
        found = Outage(
            start_seconds=start,
            end_seconds=high,
            ended=bool(rights.size and high <= rights[-1]),
        )
        if best is None or found.seconds > best.seconds:
            best = found
    return best


class Served(Settings):
    """The requests that were due in one part of a run. None is unknown: no request was due."""

    requests: int
    """Requests sent, or rejected as too many were in flight."""
    lost: int
    """Errors, timeouts, rejected."""
    wrong: int
    """Requests answered with success, but with a wrong answer."""
    unsent: int
    """Requests never sent, due to the sender; not in any other count."""
    availability: float | None
    """Share of correct answers."""
    p50: float | None
    """Seconds since they were due; requests without a correct answer count as the
    timeout."""
    p95: float | None
    p99: float | None


def served(answers: Answers, mine: Mask) -> Served:
    """Return the figures of the chosen requests."""
    known = mine & ~answers.unsent
    count, right = int(known.sum()), int((known & answers.right).sum())
    wrong = int((known & (answers.outcome == Outcome.WRONG)).sum())
    latency = answers.latency[known]
    p50, p95, p99 = (
        quantile_of(latency, q) if count else None for q in (0.5, 0.95, 0.99)
    )
    return Served(
        requests=count,
        lost=count - right - wrong,
        wrong=wrong,
        unsent=int((mine & answers.unsent).sum()),
        availability=right / count if count else None,
        p50=p50,
        p95=p95,
        p99=p99,
    )


def phases(
    answers: Answers, faults: Sequence[Span]
) -> tuple[Served, Served | None, Served | None]:
    """Return the figures before, during and after the faults; without one all is before.

    "During" lasts from the first fault to the undo of the last one, or to the end where
    no undo was seen. Requests in flight at the first fault belong to it.
    """
    end = answers.until_seconds
    if not faults:
        return served(answers, np.ones_like(answers.right)), None, None
    start = min(faults[0].inject_seconds, end)
    reverted = faults[-1].reverted_seconds
    over = end if reverted is None else max(min(reverted, end), start)
    ended = np.where(np.isinf(answers.ended), answers.due, answers.ended)
    before = (answers.due < start) & (ended < start)
    after = answers.due >= over if over < end else np.zeros_like(before)
    return (
        served(answers, before),
        served(answers, ~before & ~after),
        served(answers, after) if over < end else None,
    )


class Span(Settings):
    """Time from one fault to the next; faults within `hold_seconds` of each other are one."""

    kinds: tuple[str, ...]
    inject_seconds: float
    reverted_seconds: float | None
    """Time at which the last of them was verified as reverted; None if it was not."""
    next_seconds: float | None
    """Injection of the next one."""
    restarted_seconds: float | None = None
    """Time at which a restarted server reported itself ready again: time before it is the
    machine's and the server's, time after it the clients'.
    """


def spans(events: Sequence[Event], hold_seconds: float) -> list[Span]:
    """Return the spans of an experiment's faults in their order."""
    injections = sorted(
        (event for event in events if event.what == "inject"),
        key=lambda event: event.at_seconds,
    )
    groups: list[list[Event]] = []
    for event in injections:
        if groups and event.at_seconds - groups[-1][-1].at_seconds < hold_seconds:
            groups[-1].append(event)
        else:
            groups.append([event])
    reverts = sorted(e.at_seconds for e in events if e.what == "reverted")
    starts = sorted(e.at_seconds for e in events if e.what == "server_ready")
    found = []
    for group, follower in zip(groups, [*groups, None][1:], strict=True):
        start = group[0].at_seconds
        end = None if follower is None else follower[0].at_seconds
        mine, ready = (
            [at for at in instants if at >= start and (end is None or at < end)]
            for instants in (reverts, starts)
        )
        kinds = tuple(str(event.detail.get("kind", "fault")) for event in group)
        found.append(
            Span(
                kinds=kinds,
                inject_seconds=start,
                reverted_seconds=mine[-1] if mine else None,
                next_seconds=end,
                restarted_seconds=ready[-1] if ready else None,
            )
        )
    return found
