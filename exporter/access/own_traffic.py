"""The ledger of our own requests, by which they are taken out of production's numbers.

Triton books a request in the statistics of every model version that it reaches: the model
asked, the steps of an ensemble and the models that these call. Where it is sure what a
request of ours raises, the ledger counts it as `done`. Of one that ends with an error, or
that a response cache may have answered, nobody can say: Triton 2.51 books the error answer
of a Python model as a success, a failing ensemble as two failures, and what it refuses
before scheduling not at all, under the same status codes. The ledger counts such a request
as `possible`; what Triton shows of it is then neither production nor surely ours.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from exporter import errors
from exporter.triton.protocol_types import Tokens
from exporter.triton.streamed_reply import tokens_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from exporter.access.inventory import ModelKey
    from exporter.triton.protocol_types import InferReply

REQUEST_ID_PREFIX: Final = "tritonwatch-"
"""Prefix of the id of all our requests, by which traces and taps recognise them."""
BOOKING_SECONDS: Final = 0.1
"""A model's backend answers first and reports to the statistics afterwards."""
_LONGEST_PAUSE_SECONDS: Final = 1.0
"""Longest wait of one of our requests."""
_MOST_PAUSE_SECONDS: Final = 0.3
"""Longest wait for our requests in flight before a read that should find none."""

Ending = Literal["ok", "failed", "rejected", "unreached", "unresolved"]
"""Answered; answered with an error, by a queue; never received by Triton; unknown."""


@dataclass(frozen=True, slots=True)
class OwnTokens:
    """Tokens of own requests in one direction; those of `unknown` requests are not known."""

    known: int = 0
    unknown: int = 0
    answered: int = 0
    """Requests of `unknown` that were answered."""
    responses: int = 0
    """Responses to these in all."""

    def __add__(self, other: OwnTokens) -> OwnTokens:
        return OwnTokens(
            self.known + other.known,
            self.unknown + other.unknown,
            self.answered + other.answered,
            self.responses + other.responses,
        )

    def plus_unknown(self, requests: int) -> OwnTokens:
        """Return the sum with requests of whose tokens and answers nothing is known."""
        return replace(self, unknown=self.unknown + requests)

    def plus(self, tokens: int | None, reply: InferReply | None) -> OwnTokens:
        """Return the sum with one request; `tokens` None are not known."""
        if tokens is not None:
            return replace(self, known=self.known + tokens)
        return OwnTokens(
            self.known,
            self.unknown + 1,
            self.answered + (reply is not None),
            self.responses + (0 if reply is None else reply.responses),
        )


@dataclass(frozen=True, slots=True)
class Booking:
    """Increase that requests cause in the statistics of one model version."""

    requests: int = 0
    """Each is one success or one failure."""
    inferences: int = 0
    batches: Mapping[int, int] = field(default_factory=dict)
    """Batch size -> executions."""
    second_failures: int = 0
    """Failures that Triton may book beside those of `requests`."""

    @property
    def failures(self) -> int:
        """The most failures that Triton may book for these requests."""
        return self.requests + self.second_failures

    def executions(self, batch_size: int) -> int:
        """Executions of one batch size."""
        return self.batches.get(batch_size, 0)

    def __add__(self, other: Booking) -> Booking:
        return self._combined(other, 1)

    def __sub__(self, other: Booking) -> Booking:
        return self._combined(other, -1)

    def _combined(self, other: Booking, sign: int) -> Booking:
        batches = {
            size: self.executions(size) + sign * other.executions(size)
            for size in self.batches.keys() | other.batches.keys()
        }
        return Booking(
            self.requests + sign * other.requests,
            self.inferences + sign * other.inferences,
            {size: count for size, count in batches.items() if count},
            self.second_failures + sign * other.second_failures,
        )


NOTHING: Final = Booking()


class Touched(NamedTuple):
    """A model version that a request reaches."""

    key: ModelKey
    batch_size: int
    is_executed: bool = True
    """True if a successful request certainly executes it: not where a cache may answer."""
    is_success_certain: bool = True
    """True if a successful request is certainly a success of this model too.

    Not behind a cache, nor where another model calls it, which may pass over its failure.
    """
    fails_twice: bool = False
    """True if Triton may count two failures for one request."""

    @property
    def booking(self) -> Booking:
        """The most that Triton books for one request."""
        size = self.batch_size
        return Booking(1, size, {size: 1}, int(self.fails_twice))


@dataclass(frozen=True, slots=True)
class OwnCounts:
    """Own requests to one model version since the start of this process."""

    ok: int = 0
    """Requests that succeeded, those that came as a step of an ensemble included."""
    failed: int = 0
    """Requests to this version that were answered with an error."""
    executed_failures: int = 0
    """Failures of `failed` that cannot have been refused before they were scheduled."""
    done: Booking = NOTHING
    """Requests that Triton certainly counts."""
    possible: Booking = NOTHING
    """Requests that Triton may count."""
    unresolved: Booking = NOTHING
    """Requests without an answer, which Triton may count now or much later."""
    in_flight: Booking = NOTHING
    under_way: frozenset[int] = field(default=frozenset(), compare=False)
    """Ordinals of the requests of `in_flight`, over all model versions."""
    input_tokens: OwnTokens = field(default=OwnTokens(), compare=False)
    output_tokens: OwnTokens = field(default=OwnTokens(), compare=False)

    @property
    def ended(self) -> Booking:
        """Return the largest increase that requests that have ended can have caused."""
        return self.done + self.possible + self.unresolved


class OwnRequest:
    """One request of ours in flight."""

    def __init__(self) -> None:
        self.from_cache = False
        """True if a response cache is known to have answered."""
        self.ending: Ending = "ok"
        self.reply: InferReply | None = None
        """The answer, where its tokens count."""


def is_of_run(request_id: str, run_id: str) -> bool:
    """Return whether an id with our prefix was made by the run with this id."""
    return request_id.rpartition("-")[0].endswith(f"-{run_id}")


class OwnTraffic:
    """The ledger of own requests. Thread-safe."""

    def __init__(self, *, run_id: str) -> None:
        self.calls: Mapping[str, Mapping[str, int]] = {}
        """Calls that models make by themselves for one request, as the user declared them:
        calling model -> called model -> calls."""
        self._lock = threading.Condition()
        self._pauses = 0
        self._last_ended = -math.inf
        self._counts: dict[ModelKey, OwnCounts] = {}
        self._numbers = itertools.count(1)
        self._ordinals = itertools.count(1)
        self.run_id = run_id
        """Part of the ids of its requests, which no other process has."""

    def new_request_id(self, purpose: str) -> str:
        """Return a unique id, recognisable as ours."""
        return f"{REQUEST_ID_PREFIX}{purpose}-{self.run_id}-{next(self._numbers)}"

    def counts(self, key: ModelKey) -> OwnCounts:
        """Return our own requests to one model version so far."""
        with self._lock:
            return self._counts.get(key, OwnCounts())

    def snapshot(self) -> dict[ModelKey, OwnCounts]:
        """Return all counts at one instant."""
        with self._lock:
            return dict(self._counts)

    @contextlib.contextmanager
    def paused(
        self, most_seconds: float = _MOST_PAUSE_SECONDS
    ) -> Generator[dict[ModelKey, OwnCounts]]:
        """Hold our requests back while the body runs, once none is in flight.

        Those under way are waited for during `most_seconds`; the body runs in any case.
        It gets the ledger of the requests that Triton had time to book.
        """
        with self._lock:
            self._pauses += 1
            self._lock.wait_for(self._is_idle, most_seconds)
            settled = dict(self._counts)
            booked = self._last_ended + BOOKING_SECONDS
        try:
            time.sleep(max(0.0, booked - time.monotonic()))
            yield settled
        finally:
            with self._lock:
                self._pauses -= 1
                self._lock.notify_all()

    def _is_idle(self) -> bool:
        return all(counts.in_flight == NOTHING for counts in self._counts.values())

    def forget(self, key: ModelKey) -> bool:
        """Reset a model version that is no longer served, unless a request is in flight."""
        with self._lock:
            if self._counts.get(key, OwnCounts()).in_flight != NOTHING:
                return False
            self._counts.pop(key, None)
        return True

    @contextlib.contextmanager
    def request(self, touched: Iterable[Touched]) -> Generator[OwnRequest]:
        """Account for one own request that reaches `touched`, the requested model first.

        What the body raises decides where it counts; errors pass through.
        """
        reached = [Touched(*share) for share in touched]
        sent = OwnRequest()
        with self._lock:
            self._lock.wait_for(lambda: not self._pauses, _LONGEST_PAUSE_SECONDS)
            this = frozenset({next(self._ordinals)})
            for share in reached:
                counts = self._counts.get(share.key, OwnCounts())
                self._counts[share.key] = replace(
                    counts,
                    in_flight=counts.in_flight + share.booking,
                    under_way=counts.under_way | this,
                )
        is_executed = False
        try:
            yield sent
        except BaseException as error:
            sent.ending = ending_of(error)
            if sent.ending == "rejected" and reached[0].fails_twice:
                # By the queue of a step, after other steps may have succeeded.
                sent.ending = "failed"
            is_executed = isinstance(error, errors.ModelError)
            raise
        finally:
            # Atomic: a read in between would see a request both done and in flight.
            with self._lock:
                for share in reached:
                    counts = self._counts[share.key]
                    self._counts[share.key] = replace(
                        counts,
                        in_flight=counts.in_flight - share.booking,
                        under_way=counts.under_way - this,
                    )
                self._book(reached, sent, is_executed=is_executed)
                self._last_ended = time.monotonic()
                self._lock.notify_all()

    def _book(
        self, reached: list[Touched], sent: OwnRequest, *, is_executed: bool
    ) -> None:
        reply = sent.reply
        tokens = Tokens()
        if reply is not None:
            tokens = reply.tokens or tokens_of(reply.outputs)
        for place, share in enumerate(reached):
            counts = self._counts[share.key]
            booking = share.booking
            if sent.ending not in {"rejected", "unreached"}:
                counts = _with_tokens(counts, share, sent, tokens)
            if sent.ending == "rejected":
                if place:
                    break
                # Triton 2.51 counts a failure, or for a full queue nothing.
                booking = Booking(second_failures=1)
            if sent.ending == "ok":
                counts = _succeeded(counts, share, from_cache=sent.from_cache)
            elif sent.ending == "unresolved":
                counts = replace(counts, unresolved=counts.unresolved + booking)
            elif sent.ending in {"failed", "rejected"}:
                counts = replace(
                    counts,
                    failed=counts.failed + (place == 0),
                    executed_failures=counts.executed_failures
                    + (place == 0 and is_executed),
                    possible=counts.possible + booking,
                )
            self._counts[share.key] = counts


def _with_tokens(
    counts: OwnCounts, share: Touched, sent: OwnRequest, tokens: Tokens
) -> OwnCounts:
    """Return the counts with the tokens that the backend made for one request."""

    def added(ours: OwnTokens, made: int | None) -> OwnTokens:
        if share.is_executed or sent.ending != "ok":
            return ours.plus(made, sent.reply)
        # A response cache may have answered with tokens that were made earlier.
        return ours if sent.from_cache else ours.plus_unknown(1)

    return replace(
        counts,
        input_tokens=added(counts.input_tokens, tokens.input),
        output_tokens=added(counts.output_tokens, tokens.output),
    )


def _succeeded(counts: OwnCounts, share: Touched, *, from_cache: bool) -> OwnCounts:
    booking = replace(share.booking, second_failures=0)
    counts = replace(counts, ok=counts.ok + 1)
    if share.is_executed:
        return replace(counts, done=counts.done + booking)
    if share.is_success_certain:
        counts = replace(counts, done=counts.done + Booking(1))
        booking = replace(booking, requests=0)
    if from_cache:
        return counts
    return replace(counts, possible=counts.possible + booking)


def ending_of(error: BaseException) -> Ending:
    """Return how a request of ours ended, from the error that it raised."""
    if isinstance(
        error,
        errors.UnreachableError
        | errors.BusyError
        | errors.DeniedError
        | errors.NotSentError
        | errors.UnsendableError,
    ):
        return "unreached"
    if isinstance(error, errors.RejectedError):
        return "rejected"
    if isinstance(
        error, errors.ModelError | errors.InvalidRequestError | errors.UnavailableError
    ):
        return "failed"
    return "unresolved"
