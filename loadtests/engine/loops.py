"""The two ways to send: on a schedule, and at a fixed concurrency, with pauses."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from time import perf_counter
from typing import TYPE_CHECKING, Final

from pydantic import Field

from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.engine.recorder import Recorder
    from loadtests.engine.senders import Sender

_BURST: Final = 64
"""Maximum of requests sent before received data are processed."""
_CLOCK_MONOTONIC: Final = 1
_NONBLOCK_CLOEXEC: Final = os.O_NONBLOCK | os.O_CLOEXEC
_ABSOLUTE: Final = 1
_NANOSECONDS: Final = 1_000_000_000
_TIMER_BYTES: Final = 8
_libc: Final = ctypes.CDLL(None, use_errno=True)
MAX_PER_SECOND: Final = 1000
"""Most pauses that end in a second, however many requests are kept in flight: one that
cannot connect fails in microseconds."""


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


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Timer:
    """Calls back on the running loop at an instant of `time.perf_counter`.

    On Linux that is CLOCK_MONOTONIC, as are asyncio's clock and all others of this
    machine. It has a descriptor: close it.
    """

    def __init__(self, fire: Callable[[], None]) -> None:
        self._fire = fire
        self._descriptor: int = _libc.timerfd_create(
            _CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC
        )
        if self._descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd_create: {os.strerror(number)}")
        self._setting = _Timer()
        self._reference = ctypes.byref(self._setting)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._ready)

    def close(self) -> None:
        """Fire no more."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def arm(self, instant_seconds: float) -> None:
        """Fire at this instant, or at once where it has passed; replaces any other."""
        whole = max(int(instant_seconds * _NANOSECONDS), 1)
        value = self._setting.value
        value.seconds, value.nanoseconds = divmod(whole, _NANOSECONDS)
        if _libc.timerfd_settime(self._descriptor, _ABSOLUTE, self._reference, None):
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd_settime: {os.strerror(number)}")

    def _ready(self) -> None:
        # Rearmed meanwhile, it has nothing to read.
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, _TIMER_BYTES)
            self._fire()


class Backoff(Settings):
    """Waits that grow by a factor from the first to the longest; no jitter.

    After a lost connection, requests fail at once until the wait is over, and the next
    one connects. A closed loop waits as long before the request that follows one without
    an answer, by those in a row. The default is what load runs have always done.
    """

    first_seconds: float = Field(default=0.1, gt=0, le=60)
    """Wait after the first failure."""
    factor: float = Field(default=1.0, ge=1, le=10)
    """Factor between consecutive waits."""
    longest_seconds: float = Field(default=0.5, gt=0, le=600)
    """Longest wait."""

    def wait_seconds(self, failures: int) -> float:
        """Return the wait after this number of failures in a row, 1 or more."""
        try:
            wait = self.first_seconds * self.factor ** (failures - 1)
        except OverflowError:
            return self.longest_seconds
        return min(wait, self.longest_seconds)


class Pauses:
    """Pauses of a closed loop's requests, each after one without an answer.

    Args:
        backoff: how long, by the failures in a row.
        ask: begins the next request, after this number of failures.
    """

    def __init__(self, backoff: Backoff, ask: Callable[[int], None]) -> None:
        self.waited_seconds = 0.0
        """Time of all pauses together."""
        self._backoff = backoff
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, tuple[float, asyncio.TimerHandle]] = {}
        self._begun = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, failures: int) -> None:
        """Start a pause, after this number of failures in a row, 1 or more."""
        wait = max(
            self._backoff.wait_seconds(failures),
            (len(self._waiting) + 1) / MAX_PER_SECOND,
        )
        key = self._begun = self._begun + 1
        timer = self._loop.call_later(wait, self._end, key, failures)
        self._waiting[key] = (perf_counter(), timer)

    def clear(self) -> None:
        """Cancel all pauses."""
        now = perf_counter()
        for began, timer in self._waiting.values():
            timer.cancel()
            self.waited_seconds += now - began
        self._waiting.clear()

    def _end(self, key: int, failures: int) -> None:
        began, _ = self._waiting.pop(key)
        self.waited_seconds += perf_counter() - began
        self._ask(failures)
