"""The responses to one streamed request as they come: timed, their tokens counted, and kept within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.errors import ProtocolError
from exporter.triton.protocol_types import InferReply, OutputTensor, Tokens
from exporter.triton.tensors import decode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from exporter.triton.protocol_types import OutputTensor

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


INPUT: Final = "num_input_tokens"
OUTPUT: Final = "num_output_tokens"
_INTEGERS: Final = frozenset({"INT32", "INT64", "UINT32", "UINT64"})
_MOST_BYTES: Final = 8192
MOST_TOKENS: Final = 1 << 40


def tokens_of(outputs: Iterable[OutputTensor], before: Tokens | None = None) -> Tokens:
    """Return the tokens of a response, a batch added up, and of those `before` it.

    Each response of a stream has its own output, and the input of all.
    """
    found = {o.name: _sum(o) for o in outputs if o.name in (INPUT, OUTPUT)}
    first, output = found.get(INPUT), found.get(OUTPUT)
    if before is None:
        return Tokens(first, output)
    if output is not None:
        output = None if before.output is None else before.output + output
    return Tokens(before.input if first is None else first, output)


def _sum(output: OutputTensor) -> int | None:
    if output.datatype not in _INTEGERS or not 0 < len(output.data) <= _MOST_BYTES:
        return None
    try:
        # As Python's integers, which do not overflow.
        total = int(decode(output).astype(object).sum())
    except ProtocolError:
        return None
    return total if 0 <= total <= MOST_TOKENS else None
