"""The two ways to send: on a schedule, and at a fixed concurrency."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from loadtests.engine.backoff import Pauses
from loadtests.engine.pacer import Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.engine.backoff import Backoff
    from loadtests.engine.recorder import Recorder
    from loadtests.engine.senders import Sender

_BURST: Final = 64
"""Maximum of requests sent before received data are processed."""


class Loop(Protocol):
    """Sends the requests of a run, until `over` is set."""

    over: asyncio.Event
    """Set when no more requests will be sent."""

    def start(self) -> None:
        """Start; the first request may be due at the recorder's origin."""
        ...

    def stop(self) -> None:
        """Send nothing more."""
        ...


class OpenLoop:
    """Sends every request when it is due, or as soon after as it can.

    One that finds `in_flight` others not ended is rejected. Nothing is sent after
    `last_seconds`, even if requests are due then.
    """

    def __init__(
        self, sender: Sender, recorder: Recorder, *, in_flight: int, last_seconds: float
    ) -> None:
        self.over = asyncio.Event()
        self._sender = sender
        self._recorder = recorder
        self._in_flight = in_flight
        self._last = last_seconds
        self._next = 0
        self._loop = asyncio.get_running_loop()
        self._timer: Timer | None = None

    def start(self) -> None:
        """Wait for the first request."""
        self._timer = Timer(self._send_due)
        self._arm()

    def stop(self) -> None:
        """Send nothing more."""
        self._next = len(self._recorder.requests)
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        self.over.set()

    def _send_due(self) -> None:
        recorder, due = self._recorder, self._recorder.intended
        most = min(self._next + _BURST, len(due))
        now = perf_counter() - recorder.origin
        if now > self._last:
            self.stop()
            return
        while self._next < most and due[self._next] <= now:
            index = self._next
            self._next += 1
            if recorder.in_flight < self._in_flight:
                self._sender.send(index, recorder)
            else:
                recorder.reject(index)
        if self._next == len(due):
            self.stop()
        elif self._timer is not None:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            origin, due = self._recorder.origin, self._recorder.intended
            self._timer.arm(origin + due[self._next])


class ClosedLoop:
    """Keeps a number of requests in flight: each that ends is followed by the next.

    For `seconds`, and for at most `requests`. Where one got no answer the next waits, by
    `backoff`: what fails in microseconds would be asked for hundreds of thousands of times
    a second.
    """

    def __init__(
        self,
        sender: Sender,
        recorder: Recorder,
        *,
        concurrency: int,
        seconds: float,
        requests: int,
        entry_of: Callable[[int], int],
        backoff: Backoff,
    ) -> None:
        self.over = asyncio.Event()
        self._sender = sender
        self._recorder = recorder
        self._seconds = seconds
        self._requests = requests
        self._entry_of = entry_of
        self._timer: Timer | None = None
        self._pauses = Pauses(backoff, self._ask_again)
        self._most = concurrency
        """Limit of requests in flight: the concurrency less those that wait."""
        self._failures: dict[int, int] = {}
        """Consecutive failures before a request, by the request that follows them."""

    def start(self) -> None:
        """Send the first ones when the run starts."""
        self._recorder.ended = self._follow
        self._recorder.lost = self._pause
        self._timer = Timer(self._fill)
        self._timer.arm(self._recorder.origin)

    def stop(self) -> None:
        """Send nothing more."""
        self._pauses.clear()
        self._want(0)
        self._recorder.waited_seconds = self._pauses.waited_seconds
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        self.over.set()

    def start_with(self, concurrency: int) -> None:
        """Set the concurrency before the start."""
        self._want(concurrency)

    def resize(self, concurrency: int) -> None:
        """Set the concurrency from now on."""
        if not self.over.is_set():
            self._want(concurrency)
            self._fill()

    def _want(self, concurrency: int) -> None:
        self._most = concurrency - len(self._pauses)

    def _fill(self) -> None:
        while self._recorder.in_flight < self._most and self._send():
            pass
        elapsed = perf_counter() - self._recorder.origin
        if self._is_over(elapsed):
            self.stop()
        elif self._timer is not None and elapsed < self._seconds:
            # Where nothing is in flight, nothing else would end the run.
            self._timer.arm(self._recorder.origin + self._seconds)

    def _is_over(self, elapsed: float) -> bool:
        started = self._recorder.started
        return started >= self._requests or elapsed >= self._seconds

    def _follow(self, index: int) -> None:
        if self._failures:
            self._failures.pop(index, None)
        if self._recorder.in_flight < self._most:
            self._send()

    def _pause(self, index: int) -> None:
        failures = self._failures.pop(index, 0) + 1
        if self._is_over(perf_counter() - self._recorder.origin):
            self.stop()
        elif self._recorder.in_flight < self._most:
            self._pauses.begin(failures)
            self._most -= 1

    def _ask_again(self, failures: int) -> None:
        self._most += 1
        if self._recorder.in_flight < self._most:
            self._failures[self._recorder.started] = failures
            self._send()

    def _send(self) -> bool:
        recorder = self._recorder
        index = recorder.started
        elapsed = perf_counter() - recorder.origin
        if self._is_over(elapsed) or not recorder.make_room(index + 1):
            self.stop()
            return False
        recorder.entry[index] = self._entry_of(index)
        self._sender.send(index, recorder)
        recorder.intended[index] = recorder.sent[index]
        return True
