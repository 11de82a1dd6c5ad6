"""The base of every protocol's sender: sequences, turns, and checks of answers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from loadtests.engine.answer_frames import AnswerCheck
from loadtests.engine.sequences import Sequences
from loadtests.result import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from loadtests.engine.recorder import Recorder
    from loadtests.engine.sequences import Sequence
    from loadtests.mix import Body, Mix

_SEQUENCES = 3  # a stream of random numbers of the seed
ACCEPTED = "a corrupt request was answered with success"


class Sender(Protocol):
    """Sends the bodies of a mix, on the loop it was opened in."""

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            LoadError: there is no server.
        """
        ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End requests in flight and close the connections."""
        ...

    def send(self, index: int, recorder: Recorder) -> None:
        """Start the request of this index; its end is recorded.

        Never waits. The body is the entry's own, in turns.
        """
        ...

    def wind_up(self) -> None:
        """End the sequences that were started: no more requests will be sent."""
        ...


class Turns:
    """State of a sender for each entry; `place` is an entry's index in the mix."""

    def __init__(self, mix: Mix, seed: int) -> None:
        self.entries = mix.entries
        self.checks = [AnswerCheck(entry) for entry in mix.entries]
        self.refused = [entry.refused for entry in mix.entries]
        """True for entries whose correct answer is an error."""
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
