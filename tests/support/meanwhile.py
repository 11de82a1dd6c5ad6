"""Work in the background of a test."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


@contextlib.contextmanager
def repeated(act: Callable[[], object], pause_seconds: float = 0.0) -> Generator[None]:
    """Call `act` again and again in a thread until the block ends; raise what it raised."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(pause_seconds):
            act()

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(run)
        try:
            yield
        finally:
            over.set()
        running.result()
