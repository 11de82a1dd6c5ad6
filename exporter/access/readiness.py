"""Asking a server and its models whether they are ready, without being held up by it.

From Triton 2.67 (26.03) on, a Python model may define `is_ready()`. While it hangs,
Triton answers no control call over gRPC for up to 5 s: liveness, metadata and statistics
wait behind the question. So nothing here waits for such an answer: questions stay in
flight, a subject that was slow is asked alone, and less and less often.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from exporter import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from exporter.access.collector_base import Server
    from exporter.access.inventory import ModelKey

GIVE_UP_SECONDS: Final = 6.0
"""A question's own deadline: Triton ends a hanging `is_ready()` after 5 s."""
MAX_IN_FLIGHT: Final = 16
SLOW_SECONDS: Final = 0.5
"""A question that takes longer may have held up other calls."""
FIRST_BACKOFF_SECONDS: Final = 60.0
MAX_BACKOFF_SECONDS: Final = 600.0
_SERVER: Final = ("", "")


class ReadinessHold:
    """Times at which readiness requests delayed the server's other answers. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: dict[object, float] = {}
        self._last_end = float("-inf")

    def begin(self, question: object) -> None:
        """Record that a request was sent that may delay others."""
        with self._lock:
            self._begun[question] = self._clock()

    def end(self, question: object) -> None:
        """Record that a request was answered or given up."""
        with self._lock:
            now = self._clock()
            begun = self._begun.pop(question, now)
            if now - begun > SLOW_SECONDS:
                self._last_end = now

    def held_up(self, since: float) -> bool:
        """Return whether one of our requests delayed the server after `since`."""
        with self._lock:
            now = self._clock()
            slow = any(now - begun > SLOW_SECONDS for begun in self._begun.values())
            return slow or self._last_end >= since


@dataclass(slots=True)
class _Subject:
    """The server or one model version. Times are monotonic seconds."""

    ready: bool | None = None
    error: errors.TritonError | None = None
    """Reason why the last request got no usable answer, other than lateness."""
    call: Any = None
    sent_at: float = float("-inf")
    next_at: float = float("-inf")
    slow: int = 0
    """Consecutive slow answers while it was the only request."""
    timeouts: int = 0


@dataclass(frozen=True, slots=True)
class Readiness:
    """The latest answers; None where there was none yet, or no such call."""

    server: bool | None = None
    error: errors.TritonError | None = None
    """Reason why the server's own readiness could not be read, other than lateness."""
    models: dict[ModelKey, bool | None] = field(default_factory=dict)
    timeouts: dict[ModelKey, int] = field(default_factory=dict)
    """Questions without an answer in time, by the model version to blame."""


class ReadinessAsker:
    """Reads readiness in rounds; late answers are collected in a later round."""

    def __init__(
        self, client: Server, hold: ReadinessHold, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._hold = hold
        self._clock = clock
        self._subjects: dict[ModelKey, _Subject] = {_SERVER: _Subject()}
        self._careful = False
        """True to send one request at a time, in order to find the slow subject."""
        self._answered = threading.Event()

    def ask(
        self, models: Collection[ModelKey], *, seconds: float, may_hang: bool
    ) -> Readiness:
        """Read the readiness of the server, then of these models, within `seconds` in all.

        `may_hang` says that on this server a question can hold up other calls; only
        then is a subject that was slow asked less often.
        """
        ends = time.monotonic() + seconds
        for key in self._subjects.keys() - set(models) - {_SERVER}:
            if self._subjects[key].call is not None:
                self._subjects[key].call.cancel()
            del self._subjects[key]
        for key in models:
            self._subjects.setdefault(key, _Subject())
        if not self._harvest():
            # Nothing new while an old question is open: it may hold up all others.
            self._ask_due(ends, may_hang=may_hang)
        server = self._subjects[_SERVER]
        return Readiness(
            server.ready,
            server.error,
            {key: self._subjects[key].ready for key in models},
            {key: self._subjects[key].timeouts for key in models},
        )

    def _ask_due(self, ends: float, *, may_hang: bool) -> None:
        now = self._clock()
        due = deque(
            sorted(
                (k for k, s in self._subjects.items() if s.next_at <= now),
                # The server first and alone: if it is slow, models are asked singly.
                key=lambda key: (key != _SERVER, self._subjects[key].sent_at),
            )
        )
        in_flight: set[ModelKey] = set()
        while due or in_flight:
            alone = self._careful or _SERVER in in_flight
            while due and len(in_flight) < (1 if alone else MAX_IN_FLIGHT):
                key = due.popleft()
                self._begin(key, may_hang=may_hang)
                in_flight.add(key)
                alone = alone or key == _SERVER
            # Cleared first, so that an answer that arrives meanwhile is not missed.
            self._answered.clear()
            in_flight = {k for k in in_flight if not self._finished(k)}
            left = ends - time.monotonic()
            if left < 0:
                break
            if in_flight:
                self._answered.wait(left)
        if in_flight:
            self._careful = True
            if len(in_flight) == 1:
                self._blame(next(iter(in_flight)), may_hang=may_hang)
        elif not due and not any(s.slow for s in self._subjects.values()):
            self._careful = False

    def _begin(self, key: ModelKey, *, may_hang: bool) -> None:
        subject = self._subjects[key]
        subject.sent_at = self._clock()
        call = self._client.ready_later(*key, timeout_seconds=GIVE_UP_SECONDS)
        subject.call = call
        call.add_done_callback(lambda _: self._answered.set())
        if may_hang:
            self._hold.begin(call)
            call.add_done_callback(self._hold.end)

    def _harvest(self) -> bool:
        """Collect the answers since the last round; return whether requests are pending."""
        waiting = [k for k, s in self._subjects.items() if s.call is not None]
        # Not any(): each of them is to be taken.
        finished = [self._finished(key, late=True) for key in waiting]
        return not all(finished)

    def _finished(self, key: ModelKey, *, late: bool = False) -> bool:
        subject = self._subjects[key]
        if subject.call is None:
            return True
        if not subject.call.done():
            return False
        subject.error = None
        try:
            subject.ready = self._client.ready_answer(subject.call)
        except errors.UnsupportedError:
            subject.ready = None
        except errors.TritonError as error:
            # Failed or unanswered: no client may rely on it now. We may lack a right that
            # clients have.
            subject.ready = None if isinstance(error, errors.DeniedError) else False
            if not isinstance(error, errors.DeadlineError):
                subject.error = error
        subject.call = None
        if not late:
            subject.slow = 0
        return True

    def _blame(self, key: ModelKey, *, may_hang: bool) -> None:
        subject = self._subjects[key]
        subject.timeouts += 1
        # No answer in time is not ready; a late one counts when it comes.
        subject.ready = False
        if may_hang:
            wait = min(FIRST_BACKOFF_SECONDS * 2**subject.slow, MAX_BACKOFF_SECONDS)
            subject.next_at = self._clock() + wait
            subject.slow += 1
