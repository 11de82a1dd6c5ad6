"""Undoes a run's faults when its runner can no longer do it.

A process in a session of its own that holds the read end of a pipe to the runner. The
pipe's end is the runner's end, however it died, SIGKILL included; a hard deadline is the
end of a runner that hangs. Then every open record of the journal is undone.

    watchdog.py PIPE JOURNAL_DESCRIPTOR JOURNAL DEADLINE_SECONDS
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtests.chaos.primitives.process_refs import ProcessRef, first_line, why_silent
from loadtests.chaos.undoing.undo import raise_priority, undo_journal
from loadtests.chaos.undoing.undo_journal import Journal
from loadtests.errors import FaultFailedError

if TYPE_CHECKING:
    from collections.abc import Generator

    from loadtests.chaos.undoing.undo_journal import Contents

READY: Final = "ready"
_START_SECONDS: Final = 30.0
_END_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 1.0
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True, slots=True)
class Watchdog:
    """The watchdog of a run, from the runner's side."""

    process: subprocess.Popen[str]

    def require(self) -> None:
        """Raise if the watchdog does not run, so that a fault would not be undone."""
        # After SIGKILL it is a zombie for a moment before poll() reports its end.
        running = ProcessRef.of(self.process.pid)
        if self.process.poll() is not None or running is None or not running.alive:
            raise FaultFailedError(
                "the watchdog of this run has ended, so no further fault is injected"
            )


@contextlib.contextmanager
def running_watchdog(journal: Journal, deadline_seconds: float) -> Generator[Watchdog]:
    """Run a watchdog while a block lasts; it is ready when the block begins.

    Args:
        journal: what it will undo.
        deadline_seconds: from now, when it ends the runner and undoes.

    Raises:
        FaultFailedError: it is not ready in time.
    """
    reading, pipe = os.pipe()
    held = journal.fileno()
    try:
        process = subprocess.Popen(  # noqa: S603 - no shell, our own arguments
            [
                *(sys.executable, "-P", "-m", "loadtests.chaos.undoing.watchdog"),
                *(str(reading), str(held), str(journal.path), str(deadline_seconds)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=(reading, held),
            start_new_session=True,
        )
    finally:
        os.close(reading)
    try:
        if first_line(process, _START_SECONDS) != READY:
            raise FaultFailedError(
                f"the watchdog {why_silent(process, _START_SECONDS)}, so no fault was "
                "injected; its standard error has more"
            )
        yield Watchdog(process)
    finally:
        os.close(pipe)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def main(arguments: list[str]) -> int:
    """Wait for the runner's end or the deadline, and undo."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    # It has to run on a machine without memory or processor time to spare.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("-900", "ascii")
    raise_priority()
    pipe, descriptor, path = int(arguments[0]), int(arguments[1]), Path(arguments[2])
    deadline = time.monotonic() + float(arguments[3])
    os.write(1, f"{READY}\n".encode())
    # If the runner is killed, there is no reader.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    held = Journal(path, descriptor, "")
    if not _ended(pipe, deadline):
        _end_runner(held.contents(), pipe)
    contents = held.contents()
    if contents.entries or path.exists():
        undo_journal(held, contents)
    return 0


def _ended(pipe: int, deadline: float) -> bool:
    """Return whether the runner ended before the deadline."""
    ready, _, _ = select.select([pipe], [], [], max(deadline - time.monotonic(), 0.0))
    return bool(ready)


def _end_runner(contents: Contents, pipe: int) -> None:
    """End a runner that hangs: it could inject faults after the undo."""
    if contents.runner is None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        contents.runner.send(number)
        if _ended(pipe, time.monotonic() + _GRACE_SECONDS):
            return


if __name__ == "__main__":
    # The runner waits for its end, and nothing of it is to be written or freed.
    os._exit(main(sys.argv[1:]))
