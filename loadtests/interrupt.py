"""Ctrl-C and SIGTERM: a run ends with its present result, an experiment is undone."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
_STDERR: Final = 2
_FIRST: Final = (
    b"\ninterrupted: waiting for the answers to requests under way, at most as long as "
    b"their timeout\n"
)
_AGAIN: Final = (
    b"\nstill waiting: calls that are cancelled can crash Triton; to do so nevertheless, "
    b"send SIGKILL\n"
)


@contextlib.contextmanager
def interruptible() -> Generator[Callable[[], bool]]:
    """Yield a function that returns True after SIGINT or SIGTERM; in the main thread.

    Further ones end nothing: Triton before 2.57 can crash if calls are cancelled.
    """
    interrupted = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        # Not through sys.stderr, whose buffer may be in use when the signal comes.
        with contextlib.suppress(OSError):
            os.write(_STDERR, _AGAIN if interrupted else _FIRST)
        interrupted = True

    before = {number: signal.signal(number, note) for number in NUMBERS}
    try:
        yield lambda: interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Interrupted(BaseException):
    """The command was interrupted."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


@contextlib.contextmanager
def interrupted_once() -> Generator[None]:
    """The first signal raises `Interrupted` in the main thread, later ones do nothing.

    The undo runs then; after SIGKILL the watchdog does it. In other threads than the main
    one it changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: FrameType | None) -> None:
        for each in NUMBERS:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.signal(number, end) for number in NUMBERS}
    # Stopped by Ctrl-Z, it would keep the faults in effect until the watchdog's deadline.
    before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
