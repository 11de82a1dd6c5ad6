"""Undoes the faults that runs have left: all of a journal, the last one first.

Used by the runner at its end, by the watchdog when the runner has ended, and by `tritonwatch
chaos undo` after both. An undo that fails or hangs does not stop the others.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from loadtests.chaos.faults import FAULTS
from loadtests.chaos.primitives.process_refs import end_started_with
from loadtests.chaos.undoing import undo_journal as journals
from loadtests.chaos.undoing.undo_journal import Journal, JournalError

if TYPE_CHECKING:
    from pathlib import Path

    from loadtests.chaos.undoing.undo_journal import Contents, Entry

_TRY_SECONDS: Final = 2.0
"""Time for one revert before the next is started and a failed one is retried."""
_PATIENCE_SECONDS: Final = 60.0
"""Time limit of a revert."""
_PAUSE_SECONDS: Final = 0.02
_CHECKS: Final = 2
_PRIORITY: Final = -10
SETTLE_SECONDS: Final = 0.15
"""Time from an undo to the next check for remains: a program that the fault had
started when its runner was killed may do its work a moment later."""


@dataclass(frozen=True, slots=True)
class UndoneRun:
    """The outcome of undoing one journal."""

    run: str
    path: Path
    undone: tuple[str, ...] = ()
    """Kinds of the faults that were undone."""
    problems: tuple[str, ...] = ()
    """Remains of faults, and how to remove them; empty where all is undone."""
    busy: bool = False
    """True if its run is still active, so that nothing was undone."""


def undo_all(folder: Path, *, force: bool = False) -> tuple[UndoneRun, ...]:
    """Undo every journal of a folder whose run has ended. May be repeated.

    `force` includes active runs, whose faults then end early.
    """
    files = sorted(folder.glob(f"*{journals.SUFFIX}"))
    found = (_undo(path, force=force) for path in files)
    return tuple(run for run in found if run is not None)


def require_undone(folder: Path, target: str | None, own: Path | None = None) -> None:
    """Refuse to begin where a run has left faults on this host, or one breaks the target.

    Args:
        folder: that of the undo journals.
        target: its name; None where it is the experiment's own.
        own: the journal of the run that begins.

    Raises:
        JournalError: so it is, or a journal cannot be read.
    """
    for path in sorted({*folder.glob(f"*{journals.SUFFIX}")} - {own}):
        descriptor = journals.lock(path)
        if descriptor is not None:
            os.close(descriptor)
        elif not path.exists():
            continue
        contents = journals.read(path)
        if contents.host not in {None, platform.node()}:
            continue
        if descriptor is None and target is not None and contents.target == target:
            raise JournalError(f"{path}: another experiment on {target} is running")
        if descriptor is not None and contents.entries:
            kinds = ", ".join(entry.kind for entry in contents.entries)
            raise JournalError(
                f"{path}: an earlier experiment has left {kinds}; run `tritonwatch chaos undo`"
            )


def _undo(path: Path, *, force: bool) -> UndoneRun | None:
    """Undo one journal; None where it has been removed: its run has ended well."""
    run = path.name.removesuffix(journals.SUFFIX)
    try:
        descriptor = journals.lock(path, even_locked=force)
        if descriptor is None:
            return UndoneRun(run, path, busy=True) if path.exists() else None
        try:
            held = Journal(path, descriptor, "")
            contents = held.contents()
            if contents.host not in {None, platform.node()} and not force:
                # On a shared file system; the processes here are others.
                there = (
                    f"run it on host {contents.host!r}, where the faults are; if that is "
                    "the former name of this host, add --force"
                )
                return UndoneRun(contents.run, path, problems=(there,))
            return undo_journal(held, contents)
        finally:
            os.close(descriptor)
    except (JournalError, OSError) as error:
        return UndoneRun(run, path, problems=(str(error),))


def undo_journal(held: Journal, contents: Contents) -> UndoneRun:
    """Undo all open faults of a journal, and end the run's processes."""
    undone, problems = revert_entries(held, contents.entries)
    problems = [*contents.problems, *problems]
    if contents.token:
        problems += end_started_with(contents.token, _TRY_SECONDS, _CHECKS)
    if contents.scratch is not None:
        left = journals.remove_scratch(contents.scratch)
        problems += [] if left is None else [left]
    runner = contents.runner
    # Another one that runs would record later faults in a file that is gone.
    if runner is None or runner.pid == os.getpid() or not runner.alive:
        journals.remove_if_done(held.path)
    return UndoneRun(contents.run, held.path, tuple(undone), tuple(problems))


def revert_entries(
    held: Journal,
    entries: tuple[Entry, ...],
    *,
    settle: bool = True,
    begun: dict[int, Attempt] | None = None,
) -> tuple[list[str], list[str]]:
    """Undo these, the last first; return the kinds undone, and remains in sentences.

    Args:
        held: where they are open, and closed when nothing is left of them.
        entries: in the order of injection.
        settle: check twice, as after a runner that was killed.
        begun: attempts by number of entry, from a call that was interrupted: they continue,
            and no second attempt is started.
    """
    known = {} if begun is None else begun
    attempts = [known.setdefault(e.number, Attempt(e)) for e in entries[::-1]]
    for attempt in attempts:
        attempt.run(_TRY_SECONDS)
    if settle and entries:
        time.sleep(SETTLE_SECONDS)
    undone: list[str] = []
    problems: list[str] = []
    for attempt in attempts:
        entry, left = attempt.entry, attempt.finish()
        if left:
            problems += [f"{entry.kind}: {what}" for what in left]
            continue
        undone.append(entry.kind)
        try:
            held.closed(entry)
        except JournalError as error:
            # It is undone again by the next call, which does nothing then.
            problems.append(f"{entry.kind}: undone, but not recorded: {error}")
    return undone, problems


class Attempt:
    """Undoes one fault in a thread: a call that hangs in the kernel cannot be stopped."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._thread: threading.Thread | None = None
        # After an interrupted join, CPython 3.11 reports a thread as ended (bpo-45274).
        self._over = threading.Event()
        self._problem: str | None = None

    def run(self, seconds: float) -> None:
        """Start the undo unless it runs already; wait for it, at most these seconds."""
        if not self._busy:
            self._problem, self._over = None, threading.Event()
            self._thread = threading.Thread(
                target=self._revert, args=(self._over,), daemon=True
            )
            self._thread.start()
        self._over.wait(seconds)

    def finish(self) -> list[str]:
        """Revert until no residue remains, or the time is up; return the residue.

        One that takes its time, as loading a model does, is waited for.
        """
        began = time.monotonic()
        while True:
            left = residue(self.entry)
            if not left and not self._busy:
                return []
            spent = time.monotonic() - began
            if spent > (_PATIENCE_SECONDS if self._busy else _TRY_SECONDS):
                problem = self._problem
                if self._busy:
                    problem = f"the undo has not ended after {spent:.0f} s"
                return [*left, *([] if problem is None else [problem])]
            self.run(_TRY_SECONDS)
            time.sleep(_PAUSE_SECONDS)

    @property
    def _busy(self) -> bool:
        begun = self._thread is not None and self._thread.ident is not None
        return begun and not self._over.is_set()

    def _revert(self, over: threading.Event) -> None:
        raise_priority()
        kind = FAULTS.get(self.entry.kind)
        try:
            if kind is None:
                self._problem = _unknown(self.entry)
            else:
                kind.revert(self.entry.record)
        except Exception as error:  # noqa: BLE001 - the other faults have to be undone too
            self._problem = _failure(self.entry, error)
        finally:
            over.set()


def residue(entry: Entry) -> list[str]:
    """Return the remains of a fault, in sentences."""
    kind = FAULTS.get(entry.kind)
    if kind is None:
        return [_unknown(entry)]
    found: list[str] = []

    def inspect() -> None:
        raise_priority()
        try:
            found.extend(kind.residue(entry.record))
        except Exception as error:  # noqa: BLE001 - as in `_revert`
            found.append(_failure(entry, error))

    thread = threading.Thread(target=inspect, daemon=True)
    thread.start()
    thread.join(_TRY_SECONDS)
    if thread.is_alive():
        return [
            f"the remaining effects could not be determined within {_TRY_SECONDS:g} s"
        ]
    return found


def raise_priority() -> None:
    """Raise the priority of this thread and its children, where that is allowed (root).

    A fault may be that processor time is short.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)


def _unknown(entry: Entry) -> str:
    return f"found no fault {entry.kind!r} in this version; {_by_hand(entry)}"


def _failure(entry: Entry, error: Exception) -> str:
    """Return why a fault cannot be undone or inspected.

    A record of another version lacks fields, or has them in another form.
    """
    if isinstance(error, KeyError):
        reason = f"field {error} is missing"
    elif isinstance(error, LookupError | TypeError | ValueError | AttributeError):
        reason = str(error)
    else:
        return f"{type(error).__name__}: {error}"
    return f"its record does not fit this version: {reason}; {_by_hand(entry)}"


def _by_hand(entry: Entry) -> str:
    return (
        "run `tritonwatch chaos undo` of the version that injected it, or undo it by "
        f"hand: {entry.record}"
    )
