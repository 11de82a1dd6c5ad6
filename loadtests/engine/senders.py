"""The base of every sender: sequences, turns, checks and memory of answers."""

from __future__ import annotations

import asyncio
import errno
import re
from collections import deque
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from exporter.access.own_traffic import REQUEST_ID_PREFIX
from exporter.triton.kserve import service_pb2
from exporter.triton.sequence_ids import draw_sequence_id
from loadtests.engine.answer_frames import AnswerCheck
from loadtests.result import Outcome
from loadtests.tls import ssl_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.engine.recorder import Recorder
    from loadtests.plan import Body, Entry, Mix
    from loadtests.target import Target

_SEQUENCES = 3  # a stream of random numbers of the seed
_WIND_UP_SECONDS: Final = 5.0
"""Time limit of the requests that end sequences, and of answers that came too late."""
_POLL_SECONDS: Final = 0.005
pb: Final[Any] = service_pb2
MAX_ANSWER_BYTES: Final = 64 << 20
"""Limit of one answer."""
MAX_TOGETHER_BYTES: Final = 512 << 20
"""Limit of all answers that are being received."""
SMALL_BYTES: Final = 1024
"""An answer's first piece, where it is no larger, need not be counted."""

_OWN_LIMITS: Final = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM)
)


class Turns:
    """State of a sender for each entry; `place` is an entry's index in the mix."""

    def __init__(self, mix: Mix, seed: int) -> None:
        self.entries = mix.entries
        self.checks = [AnswerCheck(entry) for entry in mix.entries]
        rng = np.random.default_rng((seed, _SEQUENCES))
        self._sequences = [Sequences(entry, rng) for entry in mix.entries]

    def next_sequence(self, place: int) -> Sequence:
        """Return the sequence whose next request is sent now."""
        return self._sequences[place].next()

    def wind_up(self, close: Callable[[int, Body, Sequence], None]) -> None:
        """End the sequences that were started; these requests are not timed."""
        for place, sequences in enumerate(self._sequences):
            sequences.wind_up(partial(self._close, place, close))

    def _close(
        self,
        place: int,
        close: Callable[[int, Body, Sequence], None],
        sequence: Sequence,
    ) -> None:
        sequence.last = True
        close(place, self.entries[place].bodies[0], sequence)

    def ended(
        self, turn: Turn, outcome: Outcome, now: float, message: str | None
    ) -> None:
        """Record the end of a request at `now`, an instant of `perf_counter`."""
        if turn.sequence is not None:
            answered = outcome is Outcome.OK
            self._sequences[turn.place].release(turn.sequence, answered=answered)
        if turn.recorder is not None:
            turn.recorder.finish(turn.index, outcome, now, message)

    def lost(self, turn: Turn, now: float, message: str) -> None:
        """Record the end of a request without an answer."""
        if turn.sequence is not None:
            self._sequences[turn.place].release(turn.sequence, answered=False)
        if turn.recorder is not None:
            turn.recorder.lose(turn.index, now, message)

    def count_own_limit(self, turn: Turn, error: OSError) -> None:
        """Count a request that found no descriptor, local port or memory here.

        Where a name has several addresses, asyncio only has the numbers of their errors
        in its text.
        """
        numbers = {int(number) for number in re.findall(r"\[Errno (\d+)\]", str(error))}
        if turn.recorder is not None and numbers & _OWN_LIMITS:
            turn.recorder.starved += 1


class Turn:
    """One request of a run. Without a recorder it ends a sequence, and is not timed."""

    __slots__ = ("body", "index", "place", "recorder", "sequence")

    def __init__(
        self,
        index: int,
        place: int,
        body: Body,
        recorder: Recorder | None,
        sequence: Sequence | None,
    ) -> None:
        self.index = index
        self.place = place
        self.body = body
        self.recorder = recorder
        self.sequence = sequence


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


class Keeping:
    """Counts the bytes that one sender keeps of answers in progress."""

    def __init__(
        self,
        answer_bytes: int = MAX_ANSWER_BYTES,
        together_bytes: int = MAX_TOGETHER_BYTES,
    ) -> None:
        self._answer = answer_bytes
        self._together = together_bytes
        self.held = 0
        """Bytes of all of them."""

    def fault(self, size: int, more: int) -> str | None:
        """Count `more` bytes of an answer of now `size`; return the error above a limit."""
        self.held += more
        if size > self._answer:
            return (
                f"the answer is larger than {self._answer} B: "
                f"{size} B had come when it was given up"
            )
        if self.held > self._together:
            return (
                f"the answers under way are together larger than {self._together} B: "
                f"{size} B of this one had come when it was given up"
            )
        return None

    def drop(self, size: int) -> None:
        """Release this number of bytes of an answer."""
        self.held -= size


def joined(before: bytes | bytearray, more: bytes) -> bytes | bytearray:
    """Return both joined; a single piece is not copied, more are appended in place."""
    if not before:
        return more
    if isinstance(before, bytes):
        return bytearray(before + more)
    before += more
    return before


class Sender:
    """Sends the bodies of a mix, on the loop it was opened in.

    As a block, it connects or raises `LoadError`; at its end requests in flight end, and
    connections are closed.
    """

    def __init__(
        self, target: Target, mix: Mix, *, timeout_seconds: float, seed: int
    ) -> None:
        self._target = target
        self._mix = mix
        self.timeout = timeout_seconds
        self._tls = ssl_context(target)
        self.turns = Turns(mix, seed)
        self.keeping = Keeping()

    def unfinished(self) -> int:
        """Return the number of requests that have not ended."""
        raise NotImplementedError

    def send(self, index: int, recorder: Recorder) -> None:
        """Start the request of this index; its end is recorded.

        Never waits. The body is the entry's own, in turns.
        """
        raise NotImplementedError

    def wind_up(self) -> None:
        """End the sequences that were started; these requests are not timed."""
        self.turns.wind_up(self._close)

    def _close(self, place: int, body: Body, sequence: Sequence) -> None:
        """Start the last request of a sequence."""
        raise NotImplementedError

    async def _wait_for_answers(self, error: type[BaseException] | None) -> None:
        """Wait for what is `unfinished`, unless the block failed."""
        last = perf_counter() + _WIND_UP_SECONDS
        while self.unfinished() and error is None and perf_counter() < last:  # noqa: ASYNC110 - rare
            await asyncio.sleep(_POLL_SECONDS)
