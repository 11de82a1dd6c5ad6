"""`tritonwatch demo` as a process of a test's own."""

from __future__ import annotations

import contextlib
import functools
import subprocess
from typing import TYPE_CHECKING

from commands import COMMAND
from waiting import patience, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@contextlib.contextmanager
def running_demo(log: Path, *arguments: str) -> Generator[None]:
    """The demo, ready; its output goes to `log`."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [COMMAND, "demo", *arguments],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
    try:
        printed = functools.partial(log.read_text, "utf-8")

        def is_ready() -> bool:
            assert process.poll() is None, printed()
            return "ready after" in printed()

        wait_until(is_ready, printed)
        yield
    finally:
        process.terminate()
        process.wait(patience(30))
