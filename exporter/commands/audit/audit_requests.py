"""Send tensors through models one at a time, and see each from both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporter import errors
from exporter.commands.audit.audit_evidence import Paired, Probed, busy_ns, rise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from exporter.access.collector_base import Access
    from exporter.access.inventory import ModelKey
    from exporter.access.probe_base import Probe, Target, Verdict
    from exporter.commands.audit.gather import Pace
    from exporter.config.probe_union import AnyProbe
    from exporter.triton.model import ModelStatistics

MOST_ROUNDS: Final = 20
"""Requests sent to one target, at most."""
TELLING_ROUNDS: Final = 3
"""Rounds without a success after which no further request is sent."""
MOST_MODELS_PAIRED: Final = 50
"""Number of models above which reading all statistics for each request is too costly."""
LONGEST_LINGER_SECONDS: Final = 0.5
"""Longest wait for late answers: Triton reports a dead Python stub after one second,
just later than a probe's default timeout."""
_BOOKED_TRIES: Final = 4
_BOOKED_PAUSE_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Asked:
    """The answered targets; `not_asked` counts those that got no request in time."""

    targets: tuple[Probed, ...] = ()
    not_asked: int = 0


@dataclass(slots=True)
class _Line:
    settings: AnyProbe
    target: Target
    verdicts: list[Verdict]
    paired: list[Paired]


def ask(
    probes: Sequence[AnyProbe],
    access: Access,
    traffic: Callable[[ModelKey], int],
    *,
    deadline: float,
    statistics: bool,
    pace: Pace,
    tell: Callable[[str], None],
) -> Asked:
    """Send requests to all targets of the synthetic probes in rounds, the busiest model first.

    Each probe's own ceiling of requests a second is kept to, with one request at a time.
    `statistics` says whether they can be read, to see each request's server side.
    """
    lines = _lines(probes, access, traffic)
    tell(f"sending a tensor through each model: {len(lines)} ways")
    pairing = statistics and len(access.board.current.models) <= MOST_MODELS_PAIRED
    for number in range(MOST_ROUNDS):
        if number >= TELLING_ROUNDS and all(
            v.outcome != "ok" for line in lines for v in line.verdicts
        ):
            break  # nothing more to learn
        for line in lines:
            if pace.clock() >= deadline:
                return _asked(lines)
            started = pace.clock()
            _attempt(line, access, pace, deadline, pairing=pairing)
            slot = started + 1 / line.settings.max_requests_per_second
            pace.sleep(max(0.0, min(slot, deadline) - pace.clock()))
    return _asked(lines)


def _lines(
    probes: Sequence[AnyProbe], access: Access, traffic: Callable[[ModelKey], int]
) -> list[_Line]:
    lines = [
        _Line(settings, target, [], [])
        for settings in probes
        if settings.kind == "synthetic"
        for target in settings.build(access).targets(access.board.current)
    ]
    return sorted(
        lines, key=lambda line: (line.target.protocol, -traffic(line.target.key))
    )


def _asked(lines: Sequence[_Line]) -> Asked:
    asked = tuple(
        Probed(line.target, tuple(line.verdicts), tuple(line.paired))
        for line in lines
        if line.verdicts
    )
    return Asked(asked, len(lines) - len(asked))


def _attempt(
    line: _Line, access: Access, pace: Pace, deadline: float, *, pairing: bool
) -> None:
    left = max(0.05, deadline - pace.clock())
    settings = line.settings.model_copy(
        update={
            "timeout_seconds": min(line.settings.timeout_seconds, left),
            "linger_seconds": min(line.settings.linger_seconds, LONGEST_LINGER_SECONDS),
        }
    )
    probe: Probe = settings.build(access)
    before = _statistics(access) if pairing else {}
    verdict = probe.attempt(line.target)
    was_cut_short = settings.timeout_seconds < line.settings.timeout_seconds
    if verdict is None or (was_cut_short and verdict.outcome == "timeout"):
        # Requests cut off by the end of the audit give no information on the model.
        return
    line.verdicts.append(verdict)
    key = line.target.key
    if verdict.outcome != "ok" or verdict.duration_seconds is None or key not in before:
        return
    alone = _alone(access, pace, before[key])
    if alone is not None:
        line.paired.append(
            Paired(
                verdict.duration_seconds, alone.success.ns / 1e9, busy_ns(alone) / 1e9
            )
        )


def _alone(
    access: Access, pace: Pace, before: ModelStatistics
) -> ModelStatistics | None:
    """Return the increase by exactly one request, ours; None if others came in between."""
    for _ in range(_BOOKED_TRIES):
        after = _statistics(access).get((before.name, before.version))
        risen = rise(before, after) if after else None
        if risen is None or risen.success.count > 1:
            return None
        if risen.success.count == 1 and risen.execution_count <= 1:
            return risen
        # Triton books a request a moment after its answer is out.
        pace.sleep(_BOOKED_PAUSE_SECONDS)
    return None


def _statistics(access: Access) -> Mapping[ModelKey, ModelStatistics]:
    try:
        entries = access.grpc.statistics(timeout_seconds=0.5)
    except errors.TritonError:
        return {}
    return {(entry.name, entry.version): entry for entry in entries}
