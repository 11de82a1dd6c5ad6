"""The times between the faults of an experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.chaos.measuring.observations import Event


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
