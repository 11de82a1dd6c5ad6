"""Runners that are killed at a chosen point of a fault; run as a script by `Nursery`.

A point is a line of `loadtests/chaos` when it is run for the first time, from before the
fault is prepared until after it is reverted: the same points in every run, whatever
waits in loops.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from pydantic import TypeAdapter
from waiting import patience

from loadtests.chaos.faults import AnyFault
from loadtests.chaos.site import FaultProxy, Site
from loadtests.chaos.undoing import watchdog
from loadtests.chaos.undoing.injection import injections
from loadtests.chaos.undoing.undo_journal import Journal
from loadtests.errors import FaultRefusedError
from loadtests.interrupt import Interrupted, interrupted_once

if TYPE_CHECKING:
    from types import FrameType

_PACKAGE = f"{os.sep}loadtests{os.sep}chaos{os.sep}"


@dataclass(frozen=True)
class Ended:
    """How a runner ended."""

    points: int
    """How many it came to."""
    unrecorded: int
    """How many of them before the fault's undo record was on disk."""
    killed_at: float | None
    """Instant of time.monotonic(); None where it came to its own end."""
    journal: str
    """Its journal as it was then."""
    refused: str
    """Why the fault cannot be injected here; empty where it can."""


class Nursery:
    """A process that has everything imported and forks runners."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "nursery.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(patience(10))

    def run(
        self,
        fault: dict[str, Any],
        site: dict[str, Any],
        state: Path,
        *,
        point: int = 0,
        number: signal.Signals = signal.SIGKILL,
        quick: bool = False,
    ) -> Ended:
        """Run a fault to its end, or until the runner comes to a point.

        With `quick` its watchdog is a fork, and need not begin by importing everything.
        """
        assert self._process.stdin
        assert self._process.stdout
        out = self._folder / "out.json"
        out.unlink(missing_ok=True)
        order = {
            "fault": fault,
            "site": site,
            "state": str(state),
            "point": point,
            "signal": int(number),
            "out": str(out),
            "quick": quick,
        }
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        assert said, self._log.read_text()
        assert out.exists(), f"{said}\n{self._log.read_text()[-3000:]}"
        told = json.loads(out.read_text())
        return Ended(**told)


class _Forked:
    """As much of subprocess.Popen as a Watchdog asks for, with everything imported.

    Its imports are most of what a runner costs, and over before its first point.
    """

    def __init__(
        self, command: list[str], *, pass_fds: tuple[int, ...], **_: object
    ) -> None:
        self.returncode: int | None = None
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(writing, 1)
            for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
                if descriptor > 2 and descriptor not in pass_fds:
                    with contextlib.suppress(OSError):
                        os.close(descriptor)
            # Of `python -m module ARGUMENTS`.
            os._exit(watchdog.main(command[command.index(watchdog.__name__) + 1 :]))
        os.close(writing)
        self.stdout = os.fdopen(reading, encoding="utf-8")

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class _Points:
    """Counts lines that are run for the first time, and ends the process at one."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._seen: set[tuple[str, int]] = set()
        self._over = False
        self._unrecorded = 0
        self.journal: Path | None = None

    def trace(self, frame: FrameType, event: str, _arg: object) -> Any:
        if self._over:
            # A runner outside of tests is not traced, which makes it slow.
            sys.settrace(None)
            return None
        if _PACKAGE not in frame.f_code.co_filename:
            return None
        if event == "return" and frame.f_code is Journal.open.__code__:
            self._unrecorded = len(self._seen)
        if event == "line":
            self._seen.add((frame.f_code.co_filename, frame.f_lineno))
            if 0 < self._order["point"] <= len(self._seen):
                self._end()
        return self.trace

    def _end(self) -> None:
        self._over = True
        threading.settrace(None)  # type: ignore[arg-type]
        self.tell(time.monotonic())
        os.kill(os.getpid(), self._order["signal"])

    def tell(self, killed_at: float | None, refused: str = "") -> None:
        journal = ""
        if self.journal is not None and self.journal.exists():
            journal = self.journal.read_text()
        told = {
            "points": len(self._seen),
            "unrecorded": self._unrecorded,
            "killed_at": killed_at,
            "journal": journal,
            "refused": refused,
        }
        Path(self._order["out"]).write_text(json.dumps(told))


def _run(order: dict[str, Any]) -> None:
    fault: Any = TypeAdapter(AnyFault).validate_python(order["fault"])
    given = dict(order["site"])
    if given.get("repository"):
        given["repository"] = Path(given["repository"])
    if given.get("proxy"):
        control, *rest = given["proxy"]
        given["proxy"] = FaultProxy(Path(control), *rest)
    site = Site(**given)
    state = Path(order["state"])
    if order["quick"]:
        watchdog.subprocess = SimpleNamespace(  # type: ignore[assignment]
            Popen=_Forked, DEVNULL=subprocess.DEVNULL, PIPE=subprocess.PIPE
        )
    points = _Points(order)
    points.journal = state / "killed.undo.jsonl"
    kept = injections(state, "killed", deadline_seconds=60)
    with contextlib.suppress(Interrupted), interrupted_once(), kept as faults:
        try:
            fault.prepare(site)
        except FaultRefusedError as error:
            points.tell(None, str(error))
            return
        # What is undone is undone in threads of its own.
        threading.settrace(points.trace)
        sys.settrace(points.trace)
        faults.inject(fault, site)
        faults.revert_all()
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        points.tell(None)


def main() -> None:
    """One runner for each line of the input."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _run(json.loads(line))
                code = 0
            except BaseException as error:  # noqa: BLE001 - the parent tells it
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
                sys.stderr.flush()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
