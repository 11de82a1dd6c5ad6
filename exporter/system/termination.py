"""Signals that end a process, for work that has to put something back first."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def exit_on_signals() -> Generator[None]:
    """Make SIGTERM and SIGHUP raise SystemExit, as SIGINT raises already, so that blocks end.

    One that is ignored, as under nohup, stays ignored. Call it from the main thread.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def uninterrupted() -> Generator[None]:
    """Ignore the signals that end a process. Call it from the main thread."""
    numbers = (*_ENDING, signal.SIGINT)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
