"""The command `tritonwatch load list`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, get_args

from loadtests.errors import PlanError
from loadtests.profiles import AnyProfile

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Print the profiles and their settings."""
    members = {
        member.model_fields["kind"].default: member
        for member in get_args(get_args(AnyProfile)[0])
    }
    unknown = sorted(set(options.profile) - members.keys())
    if unknown:
        raise PlanError(
            f"found {unknown}; want one of {', '.join(members)}", "load list"
        )
    for kind in options.profile or members:
        sentence = (members[kind].__doc__ or "").strip().partition("\n")[0]
        keys = ", ".join(sorted(members[kind].model_fields.keys() - {"kind"}))
        sys.stdout.write(f"{kind:<10} {sentence}\n{'':<10} --set {keys}\n")
    return 0
