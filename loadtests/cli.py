"""The command `tritonwatch load`. Exit 0 ok, 1 a finding, 2 wrong usage, 3 no valid numbers.

What each of its commands takes; what they do is imported when one of them runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtests.command_options import add_announcers, add_command, add_target

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
the SPECpower score over all of them. Exit status: 0 ok; 2 wrong usage; 3 INVALID, with
the reason."""
_PAIR: Final = """\
Measure two models, like fp32 and int8, in alternating blocks: speed-up, energy ratio and,
with labelled data, loss of accuracy, each with its 95 % interval. The first --model is
the reference. Exit status as for efficiency."""
_REPORT: Final = """\
Make a report from the result of `load run --json` or `load capacity --json`, or compare
two results. Exit status of a comparison: 0 the second is not worse; 1 it is worse;
3 undecided. If both are equal, the probability that any figure is called worse is 5 %."""


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
    _add_list(parts)
    _add_capacity(parts)
    _add_efficiency(parts)
    _add_report(parts)


def _add_list(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "list",
        "list the load profiles",
        "loadtests.profiles.profile_list_command:run",
    )
    parser.add_argument("profile", nargs="*", metavar="KIND", help="only these")


def _add_run(commands: Subparsers) -> None:
    parser = add_command(
        commands, "run", "run one load test", "loadtests.run_command:run", _RUN
    )
    add_target(parser)
    _add_load(parser)
    _add_output(parser)


def _add_load(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile",
        metavar="KIND",
        help="profile of an open loop, see `tritonwatch load list`",
    )
    parser.add_argument(
        "--rate",
        type=float,
        metavar="R",
        help="rate of the profile, in requests per second",
    )
    parser.add_argument(
        "--set",
        action="append",
        metavar="KEY=VALUE",
        help="set an option of the profile; may be repeated",
    )
    parser.add_argument(
        "--concurrency",
        type=int,
        metavar="N",
        help="closed loop: keep N requests in flight",
    )
    parser.add_argument(
        "--duration", type=float, metavar="S", help="send requests for S seconds"
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", metavar="NAME", help="name of the run in reports")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the result to a file"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="make the run INVALID if other processes disturbed it, instead of a note",
    )
    parser.add_argument(
        "--metrics",
        metavar="URL",
        help="/metrics of the server's sidecar: adds phases and energy to the result",
    )
    add_announcers(parser)


def _add_capacity(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "capacity",
        "search the highest rate that meets an objective",
        "loadtests.capacity.capacity_command:run",
        _CAPACITY,
    )
    add_target(parser)
    _add_search(parser)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the report as JSON"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the report as a page"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_announcers(parser)


def _add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--budget", type=float, metavar="S", help="duration of the search (default 90)"
    )
    parser.add_argument(
        "--run-seconds", type=float, metavar="S", help="duration of one run (default 6)"
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        metavar="N",
        help="runs at each rate, at least 3 (default 5)",
    )
    parser.add_argument(
        "--precision",
        type=float,
        metavar="SHARE",
        help="stop once the interval is +- SHARE",
    )
    parser.add_argument(
        "--max-rate", type=float, metavar="R", help="highest rate to offer"
    )
    parser.add_argument(
        "--other-cpu",
        type=float,
        metavar="SHARE",
        help="CPU that other processes may use before a run is rejected (default 0.08)",
    )
    parser.add_argument(
        "--production-rate",
        type=float,
        metavar="R",
        help="rate of production, to compute the headroom",
    )


def _add_efficiency(commands: Subparsers) -> None:
    module = "loadtests.efficiency.efficiency_command"
    told = "measure energy from full load to idle"
    parser = add_command(commands, "efficiency", told, f"{module}:run_curve", _CURVE)
    _add_metered(parser)
    _add_curve(parser)
    told = "compare speed, energy and accuracy of two models"
    parser = add_command(commands, "pair", told, f"{module}:run_pair", _PAIR)
    _add_metered(parser)
    _add_pair(parser)


def _add_metered(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration file of a sidecar, for its `power:`",
    )
    parser.add_argument(
        "--idle-watts",
        type=float,
        metavar="W",
        help="power when idle, if there is no sensor",
    )
    parser.add_argument(
        "--full-watts",
        type=float,
        metavar="W",
        help="power at full load, with --idle-watts",
    )

    parser.add_argument(
        "--concurrency",
        type=int,
        default=8,
        metavar="N",
        help="requests in flight at full load (default 8)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the report as JSON"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the report as a page"
    )
    add_announcers(parser)


def _add_curve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--level-seconds",
        type=float,
        default=10.0,
        metavar="S",
        help="duration of each level (default 10; SPECpower demands 240)",
    )
    parser.add_argument(
        "--maximum",
        type=float,
        metavar="R",
        help="throughput at full load, in requests per second, instead of measuring it",
    )


def _add_pair(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pairs",
        type=int,
        default=10,
        metavar="N",
        help="pairs of blocks (default 10)",
    )
    parser.add_argument(
        "--block-seconds",
        type=float,
        default=2.0,
        metavar="S",
        help="duration of a block (default 2)",
    )
    parser.add_argument(
        "--labelled",
        type=Path,
        metavar="FILE",
        help="npz file with inputs and `label`, for accuracy",
    )


def _add_report(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "report",
        "make a report of a result, or compare two",
        "loadtests.report.load_report_command:run",
        _REPORT,
    )
    parser.add_argument(
        "before", nargs="?", type=Path, metavar="RESULT", help="result to report"
    )
    parser.add_argument(
        "after",
        nargs="?",
        type=Path,
        metavar="SECOND",
        help="result to compare with it",
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the report as a page"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the report as JSON"
    )
    parser.add_argument(
        "--tolerance",
        type=_share,
        default=0.05,
        metavar="SHARE",
        help="change that does not matter (default 0.05)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="ignored; kept for compatibility",
    )
    parser.add_argument(
        "--schema",
        choices=REPORTS,
        help="print the JSON schema of this kind of report and exit",
    )


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; want a share like 0.05")
    return value
