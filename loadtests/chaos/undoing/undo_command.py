"""The command `tritonwatch chaos undo`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from loadtests.chaos.undoing.undo import undo_all
from loadtests.chaos.undoing.undo_journal import default_folder

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from loadtests.chaos.undoing.undo import UndoneRun

EXIT_OK: Final = 0
EXIT_LEFT: Final = 1
_LONGEST_LINE: Final = 10_000


def state_of(options: argparse.Namespace) -> Path:
    """Return the folder of undo journals."""
    state: Path | None = options.state
    return state or default_folder()


def run(options: argparse.Namespace) -> int:
    """Undo the faults that experiments have left."""
    folder = state_of(options)
    runs = undo_all(folder, force=options.force)
    for one in runs:
        sys.stdout.write(_text(one))
    if not runs:
        sys.stdout.write(f"nothing to undo in {folder}\n")
    return EXIT_LEFT if any(one.problems for one in runs) else EXIT_OK


def _text(run: UndoneRun) -> str:
    """Return the outcome of a journal, in lines."""
    if run.busy:
        busy = f"{run.run}: its experiment still runs; --force undoes its faults anyway"
        return f"{_printable(busy)}\n"
    lines = [f"{run.run}: undone {kind}" for kind in run.undone]
    lines += [f"{run.run}: LEFT {problem}" for problem in run.problems]
    if not lines:
        lines = [f"{run.run}: nothing was in effect"]
    return "".join(f"{_printable(line)}\n" for line in lines)


def _printable(line: str) -> str:
    """Return the line without control characters, which a terminal would obey."""
    return "".join(
        c if c.isprintable() else ascii(c)[1:-1] for c in line[:_LONGEST_LINE]
    )
