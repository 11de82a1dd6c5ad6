"""Limits on the pace of a streamed answer: a stream that stalls is slow, and not dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from exporter.access.probe_base import Verdict

if TYPE_CHECKING:
    from exporter.triton.protocol_types import InferReply


class Pace(NamedTuple):
    """Longest times to a stream's first response and between two responses; None: no limit."""

    first_seconds: float | None
    gap_seconds: float | None


def judged(pace: Pace, reply: InferReply, request_id: str) -> Verdict:
    """Return the verdict on an answer that is valid: ok, or stalled."""
    first, (gap, number) = reply.first_response_seconds, reply.longest_gap
    found = []
    if first is not None and pace.first_seconds is not None:
        text = f"the first response came after {first:.3f} s"
        found.append((first - pace.first_seconds, pace.first_seconds, text))
    if pace.gap_seconds is not None:
        text = f"response {number} came {gap:.3f} s after the one before it"
        found.append((gap - pace.gap_seconds, pace.gap_seconds, text))
    over, allowed, text = max(found, default=(0.0, 0.0, ""))
    if over <= 0:
        return Verdict("ok", reply.duration_seconds, request_id)
    return Verdict(
        "stalled",
        reply.duration_seconds,
        request_id,
        f"{text}; allowed are {allowed:g} s",
        over_seconds=over,
    )
