"""The command `tritonwatch load`. Exit 0 ok, 1 a finding, 2 wrong usage, 3 no valid numbers.

What each of its commands takes; what they do is imported when one of them runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtests.command_options import add_announcers, add_command, add_target

if TYPE_CHECKING:
    from exporter.cli import Subparsers

REPORTS: Final = ("run", "capacity", "comparison", "efficiency", "pair")
"""Kinds of reports whose schema is published."""
_RUN: Final = """\
Send requests when a profile says so, whatever the server does (open loop), or keep so
many in flight (closed loop), check every answer, and tell what a user of the service
would have seen. Exit 0 is ok; 1: the SLO was missed, or without one a request was; 2:
wrong usage; 3: the numbers are not the server's, and why."""
_CAPACITY: Final = """\
Search for the highest rate at which a service level objective holds, and say how far
that can be trusted: `--slo "p99<20ms,errors<0.1%"`. Requests come at random (Poisson),
latency counts from when they were due, and one that is shed, lost or wrong is a miss.
Exit 0: found; 1: no rate holds it, or every rate offered does; 2: wrong usage; 3: the
numbers are not the server's, or too few, and why."""
_CURVE: Final = """\
Find out how fast the server goes, then offer 100, 90 ... 10 % of that and nothing, and
read power meanwhile: joules and inferences a second for each watt at each level, and
SPECpower's score over all of them. Exit 0 ok; 2: wrong usage; 3: the numbers are not to
be trusted, and why."""
_PAIR: Final = """\
Run two models, like fp32 and int8, in blocks one right after the other: speed-up, energy
ratio and, with labelled rows, accuracy lost, each with its 95 % interval. The first
--model is the reference. Exit codes as for efficiency."""
_REPORT: Final = """\
Make a report of what `load run --json` or `load capacity --json` wrote, or compare two
of them: exit 0 if the second is not worse, 1 if it is, 3 if that cannot be told. The
error rate of calling something worse that is the same is 5 % over all figures."""


def add(commands: Subparsers) -> None:
    """Add `load` and its own commands."""
    parser = commands.add_parser(
        "load",
        help="load profiles, runs, capacity search, reports",
        description="Load a Triton server, or any KServe-v2 server, and say how far the "
        "numbers can be trusted.",
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
        "the load profiles",
        "loadtests.profiles.profile_list_command:run",
    )
    parser.add_argument("profile", nargs="*", metavar="KIND", help="only these")


def _add_run(commands: Subparsers) -> None:
    parser = add_command(
        commands, "run", "one load run", "loadtests.run_command:run", _RUN
    )
    add_target(parser)
    _add_load(parser)
    _add_output(parser)


def _add_load(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile", metavar="KIND", help="of `tritonwatch load list`: an open loop"
    )
    parser.add_argument(
        "--rate", type=float, metavar="R", help="requests a second of the profile"
    )
    parser.add_argument(
        "--set",
        action="append",
        metavar="KEY=VALUE",
        help="a setting of the profile; may be repeated",
    )
    parser.add_argument(
        "--concurrency", type=int, metavar="N", help="a closed loop of N requests"
    )
    parser.add_argument(
        "--duration", type=float, metavar="S", help="how long requests are sent"
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", metavar="NAME", help="of the run, in reports")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the whole result there"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="INVALID, and not only noted, where others disturbed the machine",
    )
    parser.add_argument(
        "--metrics",
        metavar="URL",
        help="the sidecar's /metrics: where its time and energy went goes into the result",
    )
    add_announcers(parser)


def _add_capacity(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "capacity",
        "the highest rate that holds an objective, with its interval",
        "loadtests.capacity.capacity_command:run",
        _CAPACITY,
    )
    add_target(parser)
    _add_search(parser)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the report there"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the report with plots there"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_announcers(parser)


def _add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--budget", type=float, metavar="S", help="seconds of searching (default 90)"
    )
    parser.add_argument(
        "--run-seconds", type=float, metavar="S", help="of a run (default 6)"
    )
    parser.add_argument(
        "--repetitions", type=int, metavar="N", help="at each rate (default 5, least 3)"
    )
    parser.add_argument(
        "--precision", type=float, metavar="SHARE", help="end at such a half interval"
    )
    parser.add_argument(
        "--max-rate", type=float, metavar="R", help="no higher rate is offered"
    )
    parser.add_argument(
        "--other-cpu",
        type=float,
        metavar="SHARE",
        help="cores that others may take before a run is rejected (default 0.08)",
    )
    parser.add_argument(
        "--production-rate", type=float, metavar="R", help="for the headroom"
    )


def _add_efficiency(commands: Subparsers) -> None:
    module = "loadtests.efficiency.efficiency_command"
    told = "joules and QPS/W from full load to idle"
    parser = add_command(commands, "efficiency", told, f"{module}:run_curve", _CURVE)
    _add_metered(parser)
    _add_curve(parser)
    told = "one model beside another: speed, energy, accuracy"
    parser = add_command(commands, "pair", told, f"{module}:run_pair", _PAIR)
    _add_metered(parser)
    _add_pair(parser)


def _add_metered(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a sidecar's file, for its `power:`"
    )
    parser.add_argument(
        "--idle-watts", type=float, metavar="W", help="modelled, where nothing measures"
    )
    parser.add_argument(
        "--full-watts", type=float, metavar="W", help="with --idle-watts"
    )

    parser.add_argument("--concurrency", type=int, default=8, metavar="N")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the report there"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the page there"
    )
    add_announcers(parser)


def _add_curve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--level-seconds", type=float, default=10.0, metavar="S", help="SPECpower: 240"
    )
    parser.add_argument(
        "--maximum", type=float, metavar="R", help="requests a second; not calibrated"
    )


def _add_pair(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=10, metavar="N")
    parser.add_argument("--block-seconds", type=float, default=2.0, metavar="S")
    parser.add_argument(
        "--labelled", type=Path, metavar="FILE", help="npz: inputs and `label`"
    )


def _add_report(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "report",
        "a report of a result, or two results compared",
        "loadtests.report.load_report_command:run",
        _REPORT,
    )
    parser.add_argument("before", nargs="?", type=Path, metavar="RESULT")
    parser.add_argument(
        "after",
        nargs="?",
        type=Path,
        metavar="SECOND",
        help="compare it with the first",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write it as JSON")
    parser.add_argument(
        "--tolerance",
        type=_share,
        default=0.05,
        metavar="SHARE",
        help="smaller changes do not matter (default 0.05)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="ignored: a comparison draws nothing at random",
    )
    parser.add_argument(
        "--schema",
        choices=REPORTS,
        help="print the JSON schema of a kind of report, and end",
    )


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; want a share like 0.05")
    return value
