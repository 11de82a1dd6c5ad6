"""The command `tritonwatch load`. Exit 0 ok, 1 a finding, 2 wrong usage, 3 no valid numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtests import load_commands
from loadtests.capacity import capacity_command
from loadtests.efficiency import efficiency_command
from loadtests.report import report_command

if TYPE_CHECKING:
    from exporter.cli import Subparsers


def add(commands: Subparsers) -> None:
    """Add `load` and its own commands; the heavy imports are made inside them."""
    parser = commands.add_parser(
        "load",
        help="load profiles, runs, capacity search, reports",
        description="Load a Triton server, or any KServe-v2 server, and say how far the "
        "numbers can be trusted.",
    )
    parts = parser.add_subparsers(metavar="COMMAND", required=True)
    load_commands.add_run(parts)
    load_commands.add_list(parts)
    capacity_command.add(parts)
    efficiency_command.add(parts)
    report_command.add(parts)
