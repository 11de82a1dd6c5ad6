"""Undoes what runs have left: every fault of a journal, the last one first.

Whoever comes to it: the runner at its end, the watchdog at the runner's, or
`tritonwatch chaos undo` after both. One undo that fails or hangs keeps none of the
others from being tried.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from loadtests.chaos import journal as journals
from loadtests.chaos.faults import FAULTS
from loadtests.chaos.journal import Journal
from loadtests.chaos.processes import started_with

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loadtests.chaos.journal import Contents, Entry

_TRY_SECONDS: Final = 2.0
"""For one fault: the longest that its revert is waited for, and tried again."""
_PAUSE_SECONDS: Final = 0.02
SETTLE_SECONDS: Final = 0.15
"""After an undo, before what is left is looked for again: a program that the fault had
started when its runner was killed may do its work a moment later."""


@dataclass(frozen=True, slots=True)
class UndoneRun:
    """What became of one journal."""

    run: str
    path: Path
    undone: tuple[str, ...] = ()
    """Kinds of the faults that were undone."""
    problems: tuple[str, ...] = ()
    """What is left, and how to remove it; nothing where all is gone."""
    busy: bool = False
    """Its run goes on, so that nothing was touched."""


def undo_all(folder: Path, *, force: bool = False) -> tuple[UndoneRun, ...]:
    """Undo every journal of a folder whose run is gone. Any number of times.

    `force` takes those of runs that go on, too, whose faults then end early.
    """
    found = (_undo(path, force=force) for path in journals.journals(folder))
    return tuple(run for run in found if run is not None)


def _undo(path: Path, *, force: bool) -> UndoneRun | None:
    """None where it has gone meanwhile: its run has ended well."""
    descriptor = journals.take(path)
    if descriptor is None:
        if not path.exists():
            return None
        if not force:
            return UndoneRun(path.name.removesuffix(journals.SUFFIX), path, busy=True)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    try:
        contents = journals.read(path)
        held = Journal.adopt(path, descriptor, contents.token or "")
        return undo_journal(held, contents)
    finally:
        os.close(descriptor)


def undo_journal(held: Journal, contents: Contents) -> UndoneRun:
    """Undo all that is open in a journal, and end what the run has started."""
    undone, problems = revert_entries(held, contents.entries)
    problems = [*contents.problems, *problems]
    if contents.token:
        problems += end_processes(contents.token)
    if contents.scratch is not None:
        shutil.rmtree(contents.scratch, ignore_errors=True)
    journals.remove_if_done(held.path)
    return UndoneRun(contents.run, held.path, tuple(undone), tuple(problems))


def revert_entries(
    held: Journal, entries: tuple[Entry, ...], *, settle: bool = True
) -> tuple[list[str], list[str]]:
    """Undo these, the last first: kinds undone, and what is left in sentences.

    `settle` looks twice, as after a runner that was killed.
    """
    newest_first = entries[::-1]
    for entry in newest_first:
        revert(entry)
    if settle and entries:
        time.sleep(SETTLE_SECONDS)
    undone: list[str] = []
    problems: list[str] = []
    for entry in newest_first:
        left = until_gone(entry)
        if left:
            problems += [f"{entry.kind}: {what}" for what in left]
        else:
            held.closed(entry)
            undone.append(entry.kind)
    return undone, problems


def until_gone(entry: Entry) -> list[str]:
    """Revert until nothing is left, for two seconds; what is left then."""
    last = time.monotonic() + _TRY_SECONDS
    while True:
        left = residue(entry)
        if not left or time.monotonic() > last:
            return left
        failed = revert(entry)
        time.sleep(_PAUSE_SECONDS)
        if failed is not None and time.monotonic() > last:
            return [failed, *residue(entry)]


def revert(entry: Entry) -> str | None:
    """One attempt to undo it; why it failed, None where it did not."""
    kind = FAULTS.get(entry.kind)
    if kind is None:
        return _unknown(entry)
    problems: list[str] = []
    _bounded(lambda: kind.revert(entry.record), problems)
    return problems[0] if problems else None


def residue(entry: Entry) -> list[str]:
    """What is left of a fault, in sentences."""
    kind = FAULTS.get(entry.kind)
    if kind is None:
        return [_unknown(entry)]
    problems: list[str] = []
    found: list[str] = []
    _bounded(lambda: found.extend(kind.residue(entry.record)), problems)
    return [*found, *problems]


def end_processes(token: str) -> list[str]:
    """Kill every process that was started with this token; those that stay."""
    last = time.monotonic() + _TRY_SECONDS
    while True:
        found = started_with(token)
        for process in found:
            process.send(signal.SIGKILL)
        if not any(process.alive for process in found):
            return []
        if time.monotonic() > last:
            return [f"process {process.pid} does not end" for process in found]
        time.sleep(_PAUSE_SECONDS)


def _bounded(act: Callable[[], object], problems: list[str]) -> None:
    """Run it, for two seconds at most; what goes wrong becomes a problem."""

    def run() -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - the other faults have to be undone too
            problems.append(f"{type(error).__name__}: {error}")

    # A thread, since an undo that hangs in the kernel cannot be interrupted.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_TRY_SECONDS)
    if thread.is_alive():
        problems.append(f"did not end within {_TRY_SECONDS:g} s")


def _unknown(entry: Entry) -> str:
    return (
        f"found no fault {entry.kind!r} in this version; undo it with the version that "
        f"injected it, or by hand: {entry.record}"
    )
