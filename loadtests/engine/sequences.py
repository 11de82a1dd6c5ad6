"""Sequences of a stateful model: their order and parameters."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from exporter.access.own_traffic import REQUEST_ID_PREFIX
from exporter.triton.kserve import service_pb2
from exporter.triton.sequence_ids import draw_sequence_id

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from loadtests.mix import Entry

pb: Final[Any] = service_pb2


@dataclass(slots=True)
class Sequence:
    """One sequence: `step` is the number of its next request, from 0."""

    correlation_id: int | str
    length: int
    step: int = 0
    last: bool = False
    """True if the next request is the last, for any length."""

    @property
    def starts(self) -> bool:
        """True if the next request is the first."""
        return self.step == 0

    @property
    def ends(self) -> bool:
        """True if the next request is the last."""
        return self.last or self.step == self.length - 1


class Sequences:
    """The sequences of one entry that have begun and not ended.

    A sequence has at most one request in flight. A request continues the one that has
    waited the longest, or begins a new one where all others are in flight: an open loop
    does not wait.
    """

    def __init__(self, entry: Entry, rng: np.random.Generator) -> None:
        self._length = entry.sequence_length
        self._id_type = entry.spec.sequence_id_type
        self._rng = rng
        self._waiting: deque[Sequence] = deque()
        self._close: Callable[[Sequence], None] | None = None

    def next(self) -> Sequence:
        """Return the sequence whose next request is sent now."""
        if self._waiting:
            return self._waiting.popleft()
        # Drawn at random: workers with seeds of their own must not share a sequence.
        correlation_id = draw_sequence_id(
            self._id_type, self._rng.integers, prefix=REQUEST_ID_PREFIX
        )
        return Sequence(correlation_id, self._length)

    def release(self, sequence: Sequence, *, answered: bool) -> None:
        """Return a sequence after a request. A failed request ends it: its state is lost."""
        sequence.step += 1
        if not answered or sequence.step >= sequence.length:
            return
        if self._close is None:
            self._waiting.append(sequence)
        else:
            self._close(sequence)

    def wind_up(self, close: Callable[[Sequence], None]) -> None:
        """End the sequences: call `close` for each one that was started, now or later.

        A sequence left open keeps its place in the server until it counts as idle, and
        others' requests wait that long.
        """
        self._close = close
        while self._waiting:
            close(self._waiting.popleft())


def sequence_parameters(sequence: Sequence) -> bytes:
    """Return bytes that extend a message: fields in two parts are merged."""
    message = pb.ModelInferRequest()
    sequence_id = message.parameters["sequence_id"]
    if isinstance(sequence.correlation_id, str):
        sequence_id.string_param = sequence.correlation_id
    else:
        sequence_id.int64_param = sequence.correlation_id
    message.parameters["sequence_start"].bool_param = sequence.starts
    message.parameters["sequence_end"].bool_param = sequence.ends
    return bytes(message.SerializeToString())
