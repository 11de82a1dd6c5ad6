"""Injects the faults of one run so that every one of them is undone.

with injections(folder, run, deadline_seconds=60) as faults:
    injected = faults.inject(FreezeServer(), site)
    ...
# undone here in any case; if killed before, by the watchdog
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporter.errors import TritonwatchError
from loadtests.chaos.undoing.undo import require_undone, revert_entries
from loadtests.chaos.undoing.undo_journal import Journal
from loadtests.chaos.undoing.watchdog import running_watchdog
from loadtests.errors import FaultFailedError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from loadtests.chaos.faults.fault import Fault
    from loadtests.chaos.site import Site
    from loadtests.chaos.undoing.undo import Attempt
    from loadtests.chaos.undoing.undo_journal import Entry
    from loadtests.chaos.undoing.watchdog import Watchdog

_VERIFY_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault in effect."""

    fault: Fault
    entry: Entry
    at: float
    """Instant of perf_counter when it began to be injected."""
    verified_at: float
    """Time at which it was verified to be in effect."""

    def lapsed(self) -> list[str]:
        """Return what shows that it has ended; nothing where that cannot be asked."""
        try:
            return self.fault.lapsed(self.entry.record)
        except (OSError, TritonwatchError):
            return []


class Injections:
    """The faults of one run, in the order of injection."""

    def __init__(self, journal: Journal, watchdog: Watchdog) -> None:
        self._journal = journal
        self._watchdog = watchdog
        self._begun: dict[int, Attempt] = {}

    @property
    def token(self) -> str:
        """Token in the environment of the run's processes, which end with it."""
        return self._journal.token

    def inject(self, fault: Fault, site: Site) -> Injected:
        """Inject it, and verify that it is in effect.

        Raises:
            FaultRefusedError: it cannot be done there; nothing was touched.
            FaultFailedError: it was not injected; a partial injection was undone.
            JournalError: the undo record could not be kept; nothing was touched.
        """
        record = fault.prepare(site)
        self._watchdog.require()
        entry = self._journal.open(fault.name(), record)
        began = time.perf_counter()
        try:
            fault.inject(record)
            _verify(fault, entry)
        except Exception:
            self._revert((entry,))
            raise
        return Injected(fault, entry, began, time.perf_counter())

    def open(self) -> tuple[Entry, ...]:
        """Faults that are not undone."""
        return self._journal.contents().entries

    def revert_all(self) -> list[str]:
        """Undo all active faults, the last first; return those that remain."""
        return self._revert(self.open())

    def _revert(self, entries: tuple[Entry, ...]) -> list[str]:
        _, left = revert_entries(
            self._journal, entries, settle=False, begun=self._begun
        )
        return left


@contextlib.contextmanager
def injections(
    folder: Path,
    run: str,
    *,
    deadline_seconds: float,
    target: str | None = None,
    scratch: str | None = None,
) -> Generator[Injections]:
    """A journal and a watchdog for a block, at whose end everything is undone.

    `target` is the name of what is broken, unless that is the run's own; `scratch` is a
    folder that goes with the run.

    Raises:
        JournalError: there is no journal to be had in the folder, an earlier run has left
            faults, or another one breaks the target.
        FaultFailedError: there is no watchdog to be had, or at the end of the block
            something could not be undone.
    """
    journal = Journal.create(folder, run, scratch=scratch, target=target)
    left: list[str] = []
    try:
        # Of two that begin at once, one at least finds the other's journal.
        require_undone(folder, target, journal.path)
        with running_watchdog(journal, deadline_seconds) as watchdog:
            faults = Injections(journal, watchdog)
            try:
                yield faults
            finally:
                left = faults.revert_all()
    finally:
        journal.end()
    if left:
        raise FaultFailedError(f"not undone: {'; '.join(left)}")


def _verify(fault: Fault, entry: Entry) -> None:
    last = time.monotonic() + _VERIFY_SECONDS
    while True:
        missing = fault.missing(entry.record)
        if not missing:
            return
        if time.monotonic() > last:
            raise FaultFailedError(
                f"{entry.kind} was injected but has no effect: {'; '.join(missing)}"
            )
        time.sleep(_LOOK_SECONDS)
