"""Ctrl-C ends a run with what there is; a second one ends the command."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType


@contextlib.contextmanager
def interruptible() -> Generator[Callable[[], bool]]:
    """Yield whether SIGINT or SIGTERM came; in the main thread."""
    asked = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            signal.default_int_handler(number, frame)
        asked = True

    before = {
        number: signal.signal(number, note)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
