"""The command `tritonwatch chaos`.

Exit 0: users were served as the hypothesis says and recovered; 1: a finding; 2: wrong
usage, or refused; 3: no valid numbers; 130: interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtests.chaos import experiment_commands, journal_commands

if TYPE_CHECKING:
    from exporter.cli import Subparsers


def add(commands: Subparsers) -> None:
    """Add `chaos` and its own commands; the heavy imports are made inside them."""
    parser = commands.add_parser(
        "chaos",
        help="experiments: break it on purpose, under load, and measure",
        description="Break a part of a deployment on purpose, under load, and say what "
        "users saw and when they were served again. What was broken is always undone.",
    )
    parts = parser.add_subparsers(metavar="COMMAND", required=True)
    experiment_commands.add_list(parts)
    journal_commands.add_report(parts)
    experiment_commands.add_run(parts)
    experiment_commands.add_soak(parts)
    journal_commands.add_undo(parts)
