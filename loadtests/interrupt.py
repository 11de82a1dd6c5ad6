"""Ctrl-C and SIGTERM: a run ends with its present result, an experiment is undone."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def interruptible() -> Generator[Callable[[], bool]]:
    """Yield a function that returns True after SIGINT or SIGTERM; in the main thread."""
    interrupted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            signal.default_int_handler(number, frame)
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
