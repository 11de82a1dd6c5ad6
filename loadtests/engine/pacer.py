"""A precise timer on an asyncio loop.

asyncio's own timers wait in epoll, which counts whole milliseconds: a request is sent
0.4 ms late in the middle and 1.1 ms at the 99th percentile. A timerfd is a descriptor
that becomes readable at an instant of the monotonic clock, to the nanosecond.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_CLOCK_MONOTONIC: Final = 1
_NONBLOCK_CLOEXEC: Final = os.O_NONBLOCK | os.O_CLOEXEC
_ABSOLUTE: Final = 1
_NANOSECONDS: Final = 1_000_000_000
_TIMER_BYTES: Final = 8


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


_libc: Final = ctypes.CDLL(None, use_errno=True)


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
