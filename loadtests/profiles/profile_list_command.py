"""The command `tritonwatch load list`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, get_args

from pydantic import ValidationError

from loadtests.errors import PlanError
from loadtests.profiles import AnyProfile, drawing
from pages.plots import standalone

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from loadtests.profiles.profile import Profile

_SEED = 1


def run(options: argparse.Namespace) -> int:
    """Print and draw the profiles."""
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
    """Draw a profile with its defaults, where it has arrivals of its own."""
    try:
        profile = member()
    except ValidationError:
        return
    try:
        path.write_text(standalone(drawing.plot(profile, _SEED)), "utf-8")
    except OSError as error:
        raise PlanError(f"cannot be written: {error.strerror}", str(path)) from None


def _drawn(member: type[Profile]) -> str:
    """Return a drawing of a profile with its defaults."""
    try:
        return drawing.line(member(), _SEED)
    except ValidationError:
        return "as the settings it needs say"
