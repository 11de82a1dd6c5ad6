"""Standard error as a stream that never raises and never blocks for long.

A full disk, a closed pipe or an unread pipe loses log lines, but does not affect
signals, probes or scrapes.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import Final

_DESCRIPTOR: Final = 2
_PATIENCE_MS: Final = 100
"""Wait for a reader that is merely slow; after a lost line, none until one is written."""


def occupy_descriptor() -> None:
    """Open /dev/null as standard error where the process was started without one.

    The next file or socket would get its number, and what libraries print.
    """
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _DESCRIPTOR)


class StandardError:
    """The part of a text stream that loggers use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends_in_mid_line = False
        self.lines_lost = 0
        """Since the latest line that was written."""

    def write(self, text: str) -> int:
        """Write whole lines, or lose them."""
        with self._lock:
            start = "\n" if self._ends_in_mid_line else ""
            if self._write((start + text).encode("utf-8", "backslashreplace")):
                self.lines_lost = 0
            else:
                self.lines_lost += text.count("\n")
        return len(text)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def _write(self, data: bytes) -> bool:
        poll = select.poll()
        poll.register(_DESCRIPTOR, select.POLLOUT)
        while data:
            try:
                if not poll.poll(0 if self.lines_lost else _PATIENCE_MS):
                    return False
                # A pipe that is ready takes this much without blocking.
                size = os.write(_DESCRIPTOR, data[: select.PIPE_BUF])
            except OSError:
                return False
            self._ends_in_mid_line = data[size - 1 : size] != b"\n"
            data = data[size:]
        return True


STANDARD_ERROR: Final = StandardError()
