"""The command `tritonwatch load list`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from exporter.cli import Subparsers
    from loadtests.profiles.base import Profile

_SEED = 1


def add(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser("list", help="the load profiles")
    parser.add_argument("--plot", action="store_true", help="draw each")
    parser.add_argument(
        "--svg", type=Path, metavar="FOLDER", help="draw each as KIND.svg there"
    )
    parser.add_argument("profile", nargs="*", metavar="KIND", help="only these")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    import sys  # noqa: PLC0415 - beside the heavy ones
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
