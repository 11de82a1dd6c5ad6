"""Runners of chaos experiments that are ended at a chosen point of a fault.

A point is a line of `loadtests/chaos` when it is run for the first time, from before the
fault is prepared until after it is reverted: the same points in every run, whatever
waits in loops.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loadtests.chaos.undoing.injection import injections
from loadtests.chaos.undoing.undo_journal import SUFFIX, Journal
from loadtests.interrupt import Interrupted, interrupted_once

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path
    from types import FrameType

    from loadtests.chaos.faults.fault import Fault
    from loadtests.chaos.site import Site

_PACKAGE = f"{os.sep}loadtests{os.sep}chaos{os.sep}"
_RUN = "killed"
# Imports are most of what a runner costs: it is a fork of a process that has made them.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([injections.__module__])


@dataclass(frozen=True)
class Ended:
    """How a runner ended."""

    points: int
    """How many it came to."""
    unrecorded: int
    """How many of them before the fault's undo record was on disk."""
    early: bool
    """True if a signal ended it, False if it finished by itself."""
    journal: str
    """Its journal as it was then."""


def journal_of(state: Path) -> Path:
    """The undo journal of every such runner."""
    return state / f"{_RUN}{SUFFIX}"


def ended_runner(
    fault: Fault,
    site: Site,
    state: Path,
    point: int = 0,
    number: signal.Signals = signal.SIGKILL,
) -> Ended:
    """Run a fault to its end, or until the runner comes to a point and gets a signal."""
    receiving, sending = _FORKS.Pipe(duplex=False)
    arguments = (fault, site, state, point, number, sending)
    runner = _FORKS.Process(target=_run, args=arguments)
    runner.start()
    sending.close()
    with receiving:
        found: Ended = receiving.recv()
    runner.join()
    return found


class _Points:
    """Counts lines that are run for the first time, and ends the process at one."""

    def __init__(
        self, point: int, number: signal.Signals, journal: Path, told: Connection
    ) -> None:
        self._point = point
        self._number = number
        self._journal = journal
        self._told = told
        self._seen: set[tuple[str, int]] = set()
        self._over = False
        self._unrecorded = 0

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
            if 0 < self._point <= len(self._seen):
                self._over = True
                threading.settrace(None)  # type: ignore[arg-type]
                self.tell(early=True)
                os.kill(os.getpid(), self._number)
        return self.trace

    def tell(self, *, early: bool) -> None:
        journal = self._journal.read_text() if self._journal.exists() else ""
        self._told.send(Ended(len(self._seen), self._unrecorded, early, journal))


def _run(
    fault: Fault,
    site: Site,
    state: Path,
    point: int,
    number: signal.Signals,
    told: Connection,
) -> None:
    points = _Points(point, number, journal_of(state), told)
    kept = injections(state, _RUN, deadline_seconds=60)
    with contextlib.suppress(Interrupted), interrupted_once(), kept as faults:
        # What is undone is undone in threads of its own.
        threading.settrace(points.trace)
        sys.settrace(points.trace)
        faults.inject(fault, site)
        faults.revert_all()
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        points.tell(early=False)
