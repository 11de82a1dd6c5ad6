"""The command `tritonwatch chaos`: its options and sub-commands.

Exit 0: the hypothesis held and users recovered; 1: a finding; 2: wrong
usage, or refused; 3: no valid numbers; 130: interrupted.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtests.command_options import (
    HTML_REPORT,
    add_announcers,
    add_command,
    add_value,
)

if TYPE_CHECKING:
    from exporter.commands.common_options import Subparsers

_RUN: Final = """\
Run experiments: shipped ones by name, others by file.
Each sends load throughout, checks its steady-state hypothesis twice a second, and always
reverts its faults. Exit status: 0 users were served again; 1 a finding;
2 wrong usage, or refused before anything was touched; 3 INVALID, with the reason."""
_SOAK: Final = """\
Inject random faults, one after another, into an embedded Triton with a sidecar next to
it. Check that users are served again after each, and that the sidecar neither crashes
nor grows. Exit status: 0 it does neither; 1 a finding; 3 INVALID, as where the soak is
too short to know whether it grows."""
_MOST_MINUTES: Final = 240.0
_REPORT: Final = """\
Make a report from journals of `chaos run --json`: the timeline of one, or a scorecard of
several. Exit status: 0 no finding; 1 a finding; 3 undecided."""


def add(commands: Subparsers) -> None:
    """Add `chaos` and its own commands."""
    parser = commands.add_parser(
        "chaos",
        help="inject faults under load and measure what users see",
        description="Inject faults into a deployment under load, and report what users saw "
        "and when they were served again. Every fault is reverted.",
    )
    parts = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_list(parts)
    _add_report(parts)
    _add_run(parts)
    _add_soak(parts)
    _add_undo(parts)


def _add_list(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "list",
        "list the shipped experiments, and the faults with their settings",
        "loadtests.chaos.chaos_commands:list_experiments",
    )
    parser.add_argument("--faults", action="store_true", help="list only the faults")


def _add_run(commands: Subparsers) -> None:
    module = "loadtests.chaos.chaos_commands"
    run = f"{module}:run_experiments"
    parser = add_command(commands, "run", "run experiments", run, _RUN)
    parser.add_argument(
        "experiments", nargs="+", metavar="NAME|FILE", help="experiments to run"
    )
    parser.add_argument(
        "--allow",
        action="append",
        metavar="TARGET",
        default=[],
        help="target in which faults are allowed, like process:NAME (shell-style patterns; "
        "may be repeated); always allowed in the embedded Triton",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="only check the experiments",
    )
    add_value(
        parser,
        "--repetitions",
        int,
        "N",
        "repetitions, instead of those of the experiment",
    )
    add_value(parser, "--seed", int, "N", "seed, instead of that of the experiment")
    add_value(
        parser,
        "--json",
        Path,
        "DIR",
        "write a journal of each experiment to this folder",
    )
    _add_run_options(parser)
    add_announcers(parser)


def _add_soak(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "soak",
        "inject random faults for a while, and watch for leaks",
        "loadtests.chaos.chaos_commands:soak",
        _SOAK,
    )
    add_value(parser, "--minutes", _minutes, "M", "duration (default 60)")
    add_value(parser, "--seed", int, "N", "seed of the faults")
    add_value(parser, "--json", Path, "DIR", "write the journal to this folder")
    parser.set_defaults(minutes=60.0, seed=1)
    _add_run_options(parser)


def _minutes(text: str) -> float:
    value = float(text)
    if not 0 < value <= _MOST_MINUTES:
        raise argparse.ArgumentTypeError(
            f"found {text}; want up to {_MOST_MINUTES:g} minutes"
        )
    return value


def _add_report(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "report",
        "make a report of one journal, or a scorecard of several",
        "loadtests.chaos.chaos_commands:report",
        _REPORT,
    )
    parser.add_argument(
        "journals",
        nargs="*",
        type=Path,
        metavar="JOURNAL|DIR",
        help="journals, or folders with journals",
    )
    add_value(parser, *HTML_REPORT)
    add_value(parser, "--json", Path, "FILE", "write the scorecard as JSON")
    parser.add_argument(
        "--schema",
        choices=("journal", "scorecard"),
        help="print the JSON schema of a journal or a scorecard and exit",
    )


def _add_undo(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "undo",
        "revert faults that experiments have left",
        "loadtests.chaos.chaos_commands:undo",
        "Revert the faults of every experiment whose runner has ended. Safe to run at any "
        "time, and repeatedly. Exit status: 0 all is reverted; 1 a fault could not be reverted; "
        "2 no such folder; 3 an experiment still runs.",
    )
    _add_state(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="also revert those of experiments that still run",
    )


def _add_state(parser: argparse.ArgumentParser) -> None:
    """Add the option for the folder of undo journals."""
    add_value(
        parser,
        "--state",
        Path,
        "DIR",
        "folder of undo journals (default $XDG_STATE_HOME/tritonwatch/chaos, or "
        "~/.local/state/tritonwatch/chaos)",
    )


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that run experiments."""
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    _add_state(parser)
