"""The command `tritonwatch chaos undo`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from exporter.cli import Subparsers
    from loadtests.chaos.undoing.undo import UndoneRun

EXIT_OK: Final = 0
EXIT_LEFT: Final = 1
_LONGEST_LINE: Final = 10_000


def add(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "undo",
        help="undo what experiments have left",
        description="Undo every fault of every experiment whose runner is gone. May be "
        "run at any time and any number of times. Exit 1 where something is left.",
    )
    add_state(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="undo those of experiments that still run, too",
    )
    parser.set_defaults(run=_run)


def add_state(parser: argparse.ArgumentParser) -> None:
    """The option that says where undo journals lie."""
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="undo journals; default $XDG_STATE_HOME/tritonwatch/chaos, and "
        "~/.local/state where that is not set",
    )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that run experiments."""
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_state(parser)


def state_of(options: argparse.Namespace) -> Path:
    """Return the folder of undo journals."""
    from loadtests.chaos.undoing.journal import default_folder  # noqa: PLC0415 - heavy

    state: Path | None = options.state
    return state or default_folder()


def progress(options: argparse.Namespace) -> Callable[[str], None]:
    """Return what prints a line of progress."""

    def tell(line: str) -> None:
        if not options.quiet:
            sys.stderr.write(f"chaos: {line}\n")
            sys.stderr.flush()

    return tell


def _run(options: argparse.Namespace) -> int:
    from loadtests.chaos.undoing.undo import undo_all  # noqa: PLC0415 - heavy

    folder = state_of(options)
    runs = undo_all(folder, force=options.force)
    for run in runs:
        sys.stdout.write(_text(run))
    if not runs:
        sys.stdout.write(f"nothing to undo in {folder}\n")
    return EXIT_LEFT if any(run.problems for run in runs) else EXIT_OK


def _text(run: UndoneRun) -> str:
    """Return the outcome of a journal, in lines."""
    if run.busy:
        busy = f"{run.run}: its experiment still runs; --force undoes it all the same"
        return f"{_printable(busy)}\n"
    lines = [f"{run.run}: undone {kind}" for kind in run.undone]
    lines += [f"{run.run}: LEFT {problem}" for problem in run.problems]
    if not lines:
        lines = [f"{run.run}: nothing was in effect"]
    return "".join(f"{_printable(line)}\n" for line in lines)


def _printable(line: str) -> str:
    """Without control characters, which a terminal would obey."""
    return "".join(
        c if c.isprintable() else ascii(c)[1:-1] for c in line[:_LONGEST_LINE]
    )
