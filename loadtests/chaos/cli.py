"""The command `tritonwatch chaos`: its options and sub-commands.

Exit 0: users were served as the hypothesis says and recovered; 1: a finding; 2: wrong
usage, or refused; 3: no valid numbers; 130: interrupted.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtests.command_options import add_announcers, add_command

if TYPE_CHECKING:
    from exporter.cli import Subparsers

_RUN: Final = """\
Run experiments: shipped ones by name, others by file, Chaos Toolkit's own included.
Each sends load all the while, looks at its steady-state hypothesis twice a second, and
undoes whatever it broke, whatever happens. Exit 0: users were served again as promised;
1: a finding; 2: wrong usage, or refused before anything was touched; 3: the numbers are
not the server's."""
_SOAK: Final = """\
Break one thing after another, drawn from a seed, on a Triton of the run's own with a
sidecar beside it; see that users are served again after each, and that the sidecar
neither falls over nor grows. Exit 0: so it was; 1: a finding."""
_MOST_MINUTES: Final = 240.0
_REPORT: Final = """\
Make a report of the journals that `chaos run --json` wrote: of one, with its course over
time; of several, or of a folder, a scorecard. Exit 0: nothing speaks against it; 1: a
finding; 3: that cannot be told."""


def add(commands: Subparsers) -> None:
    """Add `chaos` and its own commands."""
    parser = commands.add_parser(
        "chaos",
        help="experiments: break it on purpose, under load, and measure",
        description="Break a part of a deployment on purpose, under load, and say what "
        "users saw and when they were served again. What was broken is always undone.",
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
        "shipped experiments, and faults with their settings",
        "loadtests.chaos.experiment_list_command:run",
    )
    parser.add_argument("--faults", action="store_true", help="only the faults")


def _add_run(commands: Subparsers) -> None:
    module = "loadtests.chaos.experiment_commands"
    parser = add_command(commands, "run", "run experiments", f"{module}:run", _RUN)
    parser.add_argument("experiments", nargs="+", metavar="NAME|FILE")
    parser.add_argument(
        "--allow",
        action="append",
        metavar="TARGET",
        default=[],
        help="a target that may be broken, like process:NAME; shell-style patterns; "
        "may be repeated. The embedded Triton always may",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="only read and check the experiments, by Chaos Toolkit's rules, too",
    )
    parser.add_argument(
        "--export",
        type=Path,
        metavar="DIR",
        help="only write them there as JSON for `chaos run`",
    )
    parser.add_argument(
        "--repetitions", type=int, metavar="N", help="in place of the experiment's"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="in place of the experiment's"
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="DIR",
        help="write the journal of each experiment there",
    )
    _add_run_options(parser)
    add_announcers(parser)


def _add_soak(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "soak",
        "random faults for a while, and whether anything grows",
        "loadtests.chaos.experiment_commands:soak",
        _SOAK,
    )
    parser.add_argument("--minutes", type=_minutes, default=20.0, metavar="M")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the draw")
    parser.add_argument(
        "--json", type=Path, metavar="DIR", help="write the journal there"
    )
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
        "a report of journals, or a scorecard of many",
        "loadtests.chaos.chaos_report_command:run",
        _REPORT,
    )
    parser.add_argument(
        "journals",
        nargs="*",
        type=Path,
        metavar="JOURNAL|DIR",
        help="journals, or folders of them",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page there")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the scorecard there"
    )
    parser.add_argument(
        "--schema",
        choices=("journal", "scorecard"),
        help="print the JSON schema of our block of a journal, or of a scorecard, and end",
    )


def _add_undo(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "undo",
        "undo what experiments have left",
        "loadtests.chaos.undoing.undo_command:run",
        "Undo every fault of every experiment whose runner is gone. May be run at any "
        "time and any number of times. Exit 1 where something is left.",
    )
    _add_state(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="undo those of experiments that still run, too",
    )


def _add_state(parser: argparse.ArgumentParser) -> None:
    """Add the option for the folder of undo journals."""
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="undo journals; default $XDG_STATE_HOME/tritonwatch/chaos, and "
        "~/.local/state where that is not set",
    )


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that run experiments."""
    parser.add_argument("--quiet", action="store_true", help="no progress")
    _add_state(parser)
