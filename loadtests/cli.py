"""The command `tritonwatch load`. Exit 0 ok, 1 a finding, 2 wrong usage, 3 no valid numbers.

Options of its commands. The code of a command is imported when it runs.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtests.command_options import (
    HTML_REPORT,
    JSON_REPORT,
    add_announcers,
    add_command,
    add_goodput,
    add_objective,
    add_target,
    add_value,
)

if TYPE_CHECKING:
    from exporter.commands.common_options import Subparsers

REPORTS: Final = ("run", "capacity", "comparison", "efficiency", "pair")
"""Kinds of reports whose schema is published."""
_RUN: Final = """\
Send requests at the times of a profile, however slow the server is (open loop), or keep a
number of them in flight (closed loop). Check every answer, and report what users would
have seen. Exit status: 0 ok; 1 the SLO was missed, or without one a request failed;
2 wrong usage; 3 INVALID: the numbers are not those of the server, with the reason."""
_CAPACITY: Final = """\
Search for the highest rate at which a service level objective like
`--slo "p99<20ms,errors<0.1%"` is met, with its 95 % interval. Arrivals are Poisson,
latency counts from the time a request was due, and a request that is shed, lost or
answered wrongly misses the objective. Exit status: 0 found; 1 no rate meets it, or every
rate offered does; 2 wrong usage; 3 INVALID, with the reason."""
_CURVE: Final = """\
Measure the server's highest throughput, then its power at 100, 90 ... 10 % of it and
idle. Report joules per inference and inferences per second per watt at each level, and
the SPECpower score over all of them. Exit status: 0 ok; 1 the server cannot be tested;
2 wrong usage, or no power source; 3 INVALID, with the reason."""
_PAIR: Final = """\
Measure two models, like fp32 and int8, in alternating blocks: speed-up, energy ratio and,
with labelled data, loss of accuracy, each with its 95 % interval. The first --model is
the reference. Exit status as for efficiency."""
_REPORT: Final = """\
Report a result of `load run --json` or `load capacity --json`, with the exit status of that
command; or compare two: 0 the second is not worse; 1 it is worse; 3 undecided. If both are
equal, the probability that any figure is called worse is 5 %."""


def add(commands: Subparsers) -> None:
    """Add `load` and its own commands."""
    parser = commands.add_parser(
        "load",
        help="run load tests, search the capacity, make reports",
        description="Load tests for Triton, other KServe v2 servers and OpenAI-compatible "
        "servers. Each result states whether it is valid.",
    )
    parts = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_run(parts)
    module = "loadtests.run_command"
    add_command(parts, "list", "list the load profiles", f"{module}:list_profiles")
    _add_capacity(parts)
    _add_efficiency(parts)
    _add_report(parts)


def _add_run(commands: Subparsers) -> None:
    parser = add_command(
        commands, "run", "run one load test", "loadtests.run_command:run", _RUN
    )
    add_target(parser)
    add_objective(parser)
    add_goodput(parser)
    _add_load(parser)
    _add_output(parser)


def _add_load(parser: argparse.ArgumentParser) -> None:
    add_value(
        parser,
        "--profile",
        str,
        "KIND",
        "profile of an open loop, see `tritonwatch load list`",
    )
    add_value(
        parser, "--rate", float, "R", "rate of the profile, in requests per second"
    )
    parser.add_argument(
        "--set",
        action="append",
        metavar="KEY=VALUE",
        help="set an option of the profile; may be repeated",
    )
    add_value(
        parser, "--concurrency", int, "N", "closed loop: keep N requests in flight"
    )
    add_value(
        parser,
        "--duration",
        float,
        "S",
        "send requests for S seconds (default: the profile's; closed loop: 10)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    add_value(parser, "--name", str, "NAME", "name of the run in reports")
    add_value(parser, "--json", Path, "FILE", "write the result to a file")
    parser.set_defaults(html=None)
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="make the run INVALID if other processes disturbed it, instead of a note",
    )
    add_announcers(parser)


def _add_capacity(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "capacity",
        "search the highest rate that meets an objective",
        "loadtests.capacity_command:run",
        _CAPACITY,
    )
    add_target(parser)
    add_objective(parser)
    add_value(parser, "--budget", float, "S", "seconds of load (default 90)")
    add_value(parser, "--run-seconds", float, "S", "duration of one run (default 6)")
    add_value(
        parser, "--repetitions", int, "N", "runs near capacity, at least 3 (default 5)"
    )
    add_value(
        parser, "--precision", float, "SHARE", "stop once the interval is +- SHARE"
    )
    add_value(parser, "--max-rate", float, "R", "highest rate to offer")
    add_value(
        parser,
        "--other-cpu",
        float,
        "SHARE",
        "CPU that other processes may use before a run is rejected (default 0.08)",
    )
    add_value(parser, *JSON_REPORT)
    add_value(parser, *HTML_REPORT)
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_announcers(parser)


def _add_efficiency(commands: Subparsers) -> None:
    module = "loadtests.efficiency_command"
    text = "measure energy from full load to idle"
    parser = add_command(commands, "efficiency", text, f"{module}:run_curve", _CURVE)
    _add_metered(parser)
    add_value(
        parser,
        "--level-seconds",
        _above_zero,
        "S",
        "duration of each level (default 10; SPECpower demands 240)",
    )
    add_value(
        parser,
        "--maximum",
        _above_zero,
        "R",
        "throughput at full load, in requests per second, instead of measuring it",
    )
    parser.set_defaults(level_seconds=10.0)
    text = "compare speed, energy and accuracy of two models"
    parser = add_command(commands, "pair", text, f"{module}:run_pair", _PAIR)
    _add_metered(parser)
    add_value(parser, "--pairs", int, "N", "pairs of blocks (default 10)")
    add_value(
        parser, "--block-seconds", _above_zero, "S", "duration of a block (default 2)"
    )
    add_value(
        parser,
        "--labelled",
        Path,
        "FILE",
        "npz file with inputs and `label`, for accuracy",
    )
    parser.set_defaults(pairs=10, block_seconds=2.0)


def _add_metered(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_value(
        parser,
        "--config",
        Path,
        "FILE",
        "configuration file of a sidecar, for its `power:`",
    )
    add_value(
        parser, "--idle-watts", float, "W", "power when idle, if there is no sensor"
    )
    add_value(
        parser, "--full-watts", float, "W", "power at full load, with --idle-watts"
    )
    add_value(
        parser, "--concurrency", int, "N", "requests in flight at full load (default 8)"
    )
    add_value(parser, *JSON_REPORT)
    add_value(parser, *HTML_REPORT)
    parser.set_defaults(concurrency=8)
    add_announcers(parser)


def _add_report(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "report",
        "make a report of a result, or compare two",
        "loadtests.load_report_command:run",
        _REPORT,
    )
    for name, placeholder, text in (
        ("before", "RESULT", "result to report"),
        ("after", "SECOND", "result to compare with it"),
    ):
        parser.add_argument(name, nargs="?", type=Path, metavar=placeholder, help=text)
    add_value(parser, *HTML_REPORT)
    add_value(parser, *JSON_REPORT)
    add_value(
        parser,
        "--tolerance",
        _share,
        "SHARE",
        "change that does not matter (default 0.05)",
    )
    parser.set_defaults(tolerance=0.05)
    parser.add_argument(
        "--schema",
        choices=REPORTS,
        help="print the JSON schema of this kind of report and exit",
    )


def _above_zero(text: str) -> float:
    value = _number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"found {text!r}; want a number above 0")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _share(text: str) -> float:
    value = _number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; want a share like 0.05")
    return value
