"""Records each request of a run in a few hundred nanoseconds."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from exporter.histograms.histogram import Histogram
from loadtests.plan import MAX_REQUESTS
from loadtests.result import MAX_MESSAGES, Outcome, Requests, Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable, MutableSequence

_MESSAGE_CHARACTERS: Final = 200
_OTHERS: Final = "other errors"
_FIRST_CAPACITY: Final = 1 << 14
_MAX_TOKENS: Final = (1 << 32) - 1


class Recorder:
    """The requests of a run while it runs. Belongs to the loop's thread.

    `origin` is the instant of `perf_counter` that times count from. `ended` is called
    with the index of every request that ends, after it is written down; of one that got
    no answer `lost` is, instead.
    """

    def __init__(self, requests: Requests, origin: float) -> None:
        self.origin = origin
        self.in_flight = 0
        self.started = 0
        """Number of requests sent or rejected: in order, the first ones."""
        self.finished: list[int] = []
        """Indexes of the requests that ended, in that order; a reader may remove them."""
        self.errors: dict[str, int] = {}
        self.between = Histogram()
        self.ended: Callable[[int], None] | None = None
        self.lost: Callable[[int], None] | None = None
        self.unanswered = Unanswered()
        self.starved = 0
        """Number of those that found no descriptor, local port or memory of the sender's."""
        self.queued = 0
        """Number of requests that had to wait here until the server allowed a stream."""
        self.waited_seconds = 0.0
        """Seconds that a closed loop waited after those, summed over its concurrency."""
        self._hold(requests)

    def _hold(self, requests: Requests) -> None:
        self.requests = requests
        self.intended = _view(requests.intended)
        self.sent = _view(requests.sent)
        self._first = _view(requests.first)
        self._done = _view(requests.done)
        self._outcome = _view(requests.outcome)
        self._responses = _view(requests.responses)
        self._tokens = _view(requests.tokens)
        self._longest = _view(requests.longest_gap)
        self.entry = _view(requests.entry)

    @classmethod
    def growing(cls, origin: float) -> Recorder:
        """Return a recorder for a run whose number of requests is not known in advance."""
        return cls(Requests.empty(_FIRST_CAPACITY), origin)

    def make_room(self, count: int) -> bool:
        """Add room for this number of requests; return False above the limit."""
        held = len(self.requests)
        if count <= held:
            return True
        if count > MAX_REQUESTS:
            return False
        more = Requests.empty(min(held, MAX_REQUESTS - held))
        self._hold(Requests.joined((self.requests, more)))
        return True

    def begin(self, index: int) -> None:
        """The request is handed to the sender now."""
        self.started = index + 1
        self.in_flight += 1
        self.sent[index] = perf_counter() - self.origin

    def reject(self, index: int) -> None:
        """The request is not sent, as too many are in flight."""
        self.started = index + 1
        self._outcome[index] = Outcome.REJECTED
        self.finished.append(index)

    def respond(self, index: int, now: float, since: float | None) -> None:
        """A response of a stream came; `since` is when the one before it came."""
        self._responses[index] += 1
        if since is None:
            self._first[index] = now - self.origin
            return
        gap = max(now - since, 0.0)
        self.between.record(gap)
        if not gap <= self._longest[index]:  # NaN before the first one
            self._longest[index] = gap

    def count_tokens(self, index: int, tokens: int) -> None:
        """The server reports this number of output tokens, in all, for the request."""
        self._tokens[index] = min(tokens, _MAX_TOKENS)

    def finish(
        self,
        index: int,
        outcome: Outcome,
        now: float,
        message: str | None = None,
        *,
        answered: bool = True,
    ) -> None:
        """The request ended at `now`, an instant of `perf_counter`."""
        self.in_flight -= 1
        self._done[index] = now - self.origin
        self._outcome[index] = outcome
        self.finished.append(index)
        if message is not None:
            shown = message[:_MESSAGE_CHARACTERS]
            # A server's JSON can hold half a character.
            shown = shown.encode("utf-8", "replace").decode()
            if shown not in self.errors and len(self.errors) >= MAX_MESSAGES:
                shown = _OTHERS
            self.errors[shown] = self.errors.get(shown, 0) + 1
        follow = self.ended if answered else self.lost
        if follow is not None:
            follow(index)

    def lose(self, index: int, now: float, message: str) -> None:
        """Record a request that ended without an answer."""
        self.unanswered = self.unanswered.and_at(now - self.origin)
        self.finish(index, Outcome.ERROR, now, message, answered=False)


def _view(array: Any) -> MutableSequence[Any]:
    # Python numbers out of a memoryview come at half the price of numpy's scalars.
    return cast("MutableSequence[Any]", memoryview(array))
