"""Options that several commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001


def add_config(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the option that names the configuration file."""
    parser.add_argument(
        "--config",
        "--config.file",
        dest="config",
        type=Path,
        metavar="FILE",
        required=required,
        help="configuration file (YAML)",
    )


def progress_of(command: str) -> Callable[[str], None]:
    """Return a function that prints a line of progress to standard error."""

    def report(line: str) -> None:
        sys.stderr.write(f"{command}: {line}\n")
        sys.stderr.flush()

    return report
