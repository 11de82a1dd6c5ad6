"""The commands `tritonwatch load list` and `load run`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtests.command_options import add_announcers, add_target

if TYPE_CHECKING:
    from exporter.cli import Subparsers
    from loadtests.profiles.profile import Profile
    from loadtests.result import RunResult
    from loadtests.scenario import Scenario
    from loadtests.sidecar_view import Page

_SEED = 1
EXIT_OK: Final = 0
EXIT_FINDING: Final = 1
EXIT_INVALID: Final = 3
_MOST_REFERENCE_SECONDS: Final = 600.0
_DESCRIPTION: Final = """\
Send requests when a profile says so, whatever the server does (open loop), or keep so
many in flight (closed loop), check every answer, and tell what a user of the service
would have seen. Exit 0 is ok; 1: the SLO was missed, or without one a request was; 2:
wrong usage; 3: the numbers are not the server's, and why."""


def add_list(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser("list", help="the load profiles")
    parser.add_argument("--plot", action="store_true", help="draw each")
    parser.add_argument(
        "--svg", type=Path, metavar="FOLDER", help="draw each as KIND.svg there"
    )
    parser.add_argument("profile", nargs="*", metavar="KIND", help="only these")
    parser.set_defaults(run=_list)


def _list(options: argparse.Namespace) -> int:
    from typing import get_args  # noqa: PLC0415

    from loadtests.errors import PlanError  # noqa: PLC0415
    from loadtests.profiles import AnyProfile  # noqa: PLC0415

    members = {
        member.model_fields["kind"].default: member
        for member in get_args(get_args(AnyProfile)[0])
    }
    unknown = sorted(set(options.profile) - members.keys())
    if unknown:
        raise PlanError(f"found {unknown}; there are {', '.join(members)}", "load list")
    for kind in options.profile or members:
        sentence = (members[kind].__doc__ or "").strip().partition("\n")[0]
        sys.stdout.write(f"{kind:<22} {sentence}\n")
        if options.plot:
            sys.stdout.write(f"{'':<22} {_drawn(members[kind])}\n")
        if options.svg is not None:
            _draw(members[kind], options.svg / f"{kind}.svg")
    return 0


def _draw(member: type[Profile], path: Path) -> None:
    """As it is without any settings, where it has arrivals of its own."""
    from pydantic import ValidationError  # noqa: PLC0415 - heavy

    from loadtests.errors import PlanError  # noqa: PLC0415
    from loadtests.profiles.drawing import plot  # noqa: PLC0415
    from pages.plots import standalone  # noqa: PLC0415

    try:
        profile = member()
    except ValidationError:
        return
    if profile.curve() is None:
        return
    try:
        path.write_text(standalone(plot(profile, _SEED)), "utf-8")
    except OSError as error:
        raise PlanError(f"cannot be written: {error.strerror}", str(path)) from None


def _drawn(member: type[Profile]) -> str:
    """As it is without any settings."""
    from pydantic import ValidationError  # noqa: PLC0415 - heavy

    from loadtests.profiles.drawing import line  # noqa: PLC0415

    try:
        return line(member(), _SEED)
    except ValidationError:
        return "as the settings it needs say"


def add_run(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "run",
        help="one load run",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_target(parser)
    _add_load(parser)
    _add_output(parser)
    parser.set_defaults(run=_run)


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
        "--reference",
        type=float,
        metavar="S",
        help="send one request at a time for so long before and after the run, and tell "
        "where the two differ (with --strict 1, else 0: not)",
    )
    parser.add_argument(
        "--metrics",
        metavar="URL",
        help="the sidecar's /metrics: where its time and energy went goes into the result",
    )
    add_announcers(parser)


def _run(options: argparse.Namespace) -> int:
    from loadtests.announce import (  # noqa: PLC0415 - heavy
        Ending,
        announced,
        announcers_among,
    )
    from loadtests.machine_guard import Guard, GuardLimits, guarded  # noqa: PLC0415
    from loadtests.run_text import Line, text  # noqa: PLC0415
    from loadtests.scenario_options import require_folders, scenario_of  # noqa: PLC0415

    scenario = scenario_of(options)
    require_folders(options.json)
    reference = _reference_of(options)
    announcers = announcers_among(options)
    line = None if options.quiet else Line(sys.stderr, scenario)
    with announced(scenario, announcers) as run:
        before = _page(options.metrics)
        with Guard(scenario.target.target(), GuardLimits()) as guard:
            result = _measured(scenario, line, reference, strict=options.strict)
        result = guarded(result, guard.watch(), strict=options.strict)
        result = _seen(result, before, _page(options.metrics))
        run.ended(Ending.of(result))
    if options.json is not None:
        from loadtests.result_file import write  # noqa: PLC0415

        write(result, options.json)
    sys.stdout.write(text(scenario, result))
    for problem in run.problems:
        sys.stderr.write(f"tritonwatch: {problem}\n")
    return exit_of(scenario, result)


def _page(url: str | None) -> Page | None:
    from loadtests import sidecar_view  # noqa: PLC0415 - heavy

    return None if url is None else sidecar_view.page(url)


def _seen(result: RunResult, before: Page | None, after: Page | None) -> RunResult:
    from dataclasses import replace  # noqa: PLC0415 - beside the heavy ones

    from loadtests import sidecar_view  # noqa: PLC0415

    return replace(result, sidecar=sidecar_view.between(before, after))


def _reference_of(options: argparse.Namespace) -> float:
    from loadtests.errors import PlanError  # noqa: PLC0415 - beside the heavy ones

    seconds: float | None = options.reference
    if seconds is None:
        return 1.0 if options.strict else 0.0
    if not 0 <= seconds <= _MOST_REFERENCE_SECONDS:
        raise PlanError(
            f"found {seconds:g} s; want 0 to {_MOST_REFERENCE_SECONDS:g}", "--reference"
        )
    return seconds


def _measured(
    scenario: Scenario, line: object, reference_seconds: float, *, strict: bool
) -> RunResult:
    from loadtests.engine import Options  # noqa: PLC0415
    from loadtests.execute import between_levels, execute  # noqa: PLC0415
    from loadtests.interrupt import interruptible  # noqa: PLC0415
    from loadtests.prepare import prepared  # noqa: PLC0415
    from loadtests.run_text import Line  # noqa: PLC0415

    told = line.tell if isinstance(line, Line) else None
    with prepared(scenario) as mix, interruptible() as asked:

        def run() -> RunResult:
            return execute(scenario, mix, Options(progress=told, stop=asked))

        if reference_seconds:
            result = between_levels(
                scenario, mix, reference_seconds, run, strict=strict
            )
        else:
            result = run()
    if isinstance(line, Line):
        line.end()
    return result


def exit_of(scenario: Scenario, result: RunResult) -> int:
    """The exit status that says how the run went."""
    if not result.verdict.valid:
        return EXIT_INVALID
    objective = scenario.objective()
    if objective is None:
        return EXIT_FINDING if result.miss_ratio else EXIT_OK
    missed = objective.misses(result.requests).mean(axis=0)
    return EXIT_FINDING if (missed > objective.allowed).any() else EXIT_OK
