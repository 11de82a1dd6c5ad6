"""The responses to one streamed request as they come: kept within bounds, and timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.triton.protocol_types import InferReply, OutputTensor, Tokens
from exporter.triton.token_outputs import tokens_of

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_GAPS: Final = 10_000
"""Times between responses that are kept of one request."""
MAX_KEPT_BYTES: Final = 16 << 20
"""Limit of the outputs that are kept of one request, beyond its first response."""
_TENSOR_BYTES: Final = 512
"""Memory of a tensor's record beside its name and its content."""


class StreamedReply:
    """Collects the responses of one request that was sent at `started`, in seconds."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._responses: list[tuple[OutputTensor, ...]] = []
        self._number = 0
        self._kept_bytes = 0
        self._tokens: Tokens | None = None
        self._first: float | None = None
        self._last = 0.0
        self._gaps: list[float] = []
        self._longest = (0.0, 0)

    def add(self, outputs: tuple[OutputTensor, ...], now: float) -> None:
        """Add a response with outputs that came at `now`."""
        if self._first is None:
            self._first = now - self._started
        else:
            gap = now - self._last
            if len(self._gaps) < MAX_GAPS:
                self._gaps.append(gap)
            self._longest = max(self._longest, (gap, self._number + 1))
        self._last = now
        self._number += 1
        self._tokens = tokens_of(outputs, self._tokens)
        self._kept_bytes += _size(outputs)
        # Without holes: once one is too much, none that follows is kept.
        if self._kept_bytes <= MAX_KEPT_BYTES or self._number == 1:
            self._responses.append(outputs)

    def ended(self, now: float) -> InferReply:
        """Return the whole reply of a stream that ended at `now`."""
        return InferReply(
            (),
            now - self._started,
            self._number,
            self._tokens,
            self._first,
            tuple(self._gaps),
            tuple(self._responses),
            self._longest,
        )


def _size(outputs: Iterable[OutputTensor]) -> int:
    return sum(
        _TENSOR_BYTES + len(o.name) + 8 * len(o.shape) + len(o.data) for o in outputs
    )
