"""The command `tritonwatch chaos list`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from exporter.cli import Subparsers
    from loadtests.chaos.faults.base import Fault


def add(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "list", help="shipped experiments, and faults with their settings"
    )
    parser.add_argument("--faults", action="store_true", help="only the faults")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    for line in _faults() if options.faults else (*_experiments(), "", *_faults()):
        sys.stdout.write(f"{line}\n")
    return 0


def _experiments() -> Iterator[str]:
    from loadtests.chaos import experiment  # noqa: PLC0415 - heavy, only here

    files = experiment.names()
    width = max((len(file.stem) for file in files), default=0)
    yield "experiments: tritonwatch chaos run NAME"
    for file in files:
        loaded = experiment.load(file).experiment
        extension = loaded.extension
        least = extension.timing.before_seconds + extension.timing.after_seconds
        least += sum(a.pauses.before + a.pauses.after for a in loaded.method)
        rounds = extension.repetitions
        rounds *= len(extension.sweep.values) if extension.sweep else 1
        yield f"  {file.stem:<{width}}  {least * rounds:5.0f} s  {loaded.title}"


def _faults() -> Iterator[str]:
    from loadtests.chaos.faults import FAULTS  # noqa: PLC0415 - heavy, only here

    width = max(map(len, FAULTS))
    yield "faults, with settings and their defaults"
    for kind, fault in sorted(FAULTS.items()):
        what = (fault.__doc__ or "").split("\n", 1)[0]
        yield f"  {kind:<{width}}  {what}"
        settings = list(_settings(fault))
        if settings:
            yield f"  {'':<{width}}  {'; '.join(settings)}"


def _settings(fault: type[Fault]) -> Iterator[str]:
    from loadtests.chaos.faults.base import SustainedFault  # noqa: PLC0415 - heavy

    own, shared = dict(fault.model_fields), SustainedFault.model_fields
    own.pop("kind")
    for name, field in sorted(own.items(), key=lambda item: item[0] in shared):
        default = "required" if field.is_required() else repr(field.default)
        mark = " (strength)" if name == fault.strength else ""
        yield f"{name}: {default}{mark}"
