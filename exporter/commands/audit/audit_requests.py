"""Sends tensors through models, one request at a time, the busiest model first."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporter.catalogue.probe_outcomes import UNJUDGED
from exporter.commands.audit.model_seen import Answers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from exporter.access.collector_base import Access
    from exporter.access.inventory import ModelKey
    from exporter.access.probe_base import Target, Verdict
    from exporter.config.kinds import AnyProbe

MOST_ROUNDS: Final = 20
"""Requests sent to one target, at most."""
TELLING_ROUNDS: Final = 3
"""Rounds without a success after which no further request is sent."""
LONGEST_LINGER_SECONDS: Final = 0.5
"""Longest wait for late answers: Triton reports a dead Python stub after one second,
just later than a probe's default timeout."""
_IDLE: Final = threading.Event()


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to ask a model, and the verdicts so far."""

    settings: AnyProbe
    target: Target
    verdicts: list[Verdict]


def idle(seconds: float) -> None:
    """Wait."""
    _IDLE.wait(max(0.0, seconds))


def ask(
    probes: Sequence[AnyProbe],
    access: Access,
    requests: Mapping[ModelKey, int],
    *,
    deadline: float,
) -> tuple[tuple[Answers, ...], int]:
    """Send requests to all targets of the synthetic probes in rounds, within a deadline.

    Each probe's own ceiling of requests a second is kept to. `requests` are those that
    each model has served. Returns the answers by target, and the number of targets
    without a verdict.
    """
    ways = [
        _Way(settings, target, [])
        for settings in probes
        if settings.kind == "synthetic"
        for target in settings.build(access).targets(access.board.current)
    ]
    ways.sort(key=lambda way: (way.target.protocol, -requests.get(way.target.key, 0)))
    _ask_in_rounds(ways, access, deadline)
    answers = [Answers(way.target, tuple(way.verdicts)) for way in ways if way.verdicts]
    return tuple(answers), len(ways) - len(answers)


def _ask_in_rounds(ways: Sequence[_Way], access: Access, deadline: float) -> None:
    for number in range(MOST_ROUNDS):
        verdicts = [verdict for way in ways for verdict in way.verdicts]
        if number >= TELLING_ROUNDS and all(v.outcome != "ok" for v in verdicts):
            return  # nothing more to learn
        for way in ways:
            started = access.clock()
            if started >= deadline:
                return
            _attempt(way, access, deadline - started)
            slot = started + 1 / way.settings.max_requests_per_second
            idle(min(slot, deadline) - access.clock())


def _attempt(way: _Way, access: Access, left_seconds: float) -> None:
    wanted = way.settings
    settings = wanted.model_copy(
        update={
            "timeout_seconds": min(wanted.timeout_seconds, max(0.05, left_seconds)),
            "linger_seconds": min(wanted.linger_seconds, LONGEST_LINGER_SECONDS),
        }
    )
    verdict = settings.build(access).attempt(way.target)
    if verdict is None or verdict.outcome in UNJUDGED:
        return
    was_cut_short = settings.timeout_seconds < wanted.timeout_seconds
    if not (was_cut_short and verdict.outcome == "timeout"):
        # One cut off by the end of the audit gives no information on the model.
        way.verdicts.append(verdict)
