"""The command `tritonwatch chaos`.

Exit 0: users were served as the hypothesis says and recovered; 1: a finding; 2: wrong
usage, or refused; 3: no valid numbers; 130: interrupted.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from exporter.cli import Subparsers

_PARTS: Final = (
    "loadtests.chaos.commands.list_command",
    "loadtests.chaos.commands.report_command",
    "loadtests.chaos.commands.run_command",
    "loadtests.chaos.commands.soak_command",
    "loadtests.chaos.commands.undo_command",
)
"""What has an `add(commands)`; the heavy imports are made inside the commands."""


def add(commands: Subparsers) -> None:
    """Add `chaos` and its own commands."""
    parser = commands.add_parser(
        "chaos",
        help="experiments: break it on purpose, under load, and measure",
        description="Break a part of a deployment on purpose, under load, and say what "
        "users saw and when they were served again. What was broken is always undone.",
    )
    parts = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in _PARTS:
        importlib.import_module(name).add(parts)
