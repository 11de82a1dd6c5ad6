"""The command `tritonwatch chaos list`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from loadtests.chaos import experiment
from loadtests.chaos.faults import FAULTS
from loadtests.chaos.faults.fault import SustainedFault

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from loadtests.chaos.faults.fault import Fault


def run(options: argparse.Namespace) -> int:
    """Print shipped experiments, and faults with their settings."""
    for line in _kinds() if options.faults else (*_shipped(), "", *_kinds()):
        sys.stdout.write(f"{line}\n")
    return 0


def _shipped() -> Iterator[str]:
    files = experiment.names()
    width = max((len(file.stem) for file in files), default=0)
    yield "experiments: tritonwatch chaos run NAME"
    for file in files:
        loaded = experiment.load(file).experiment
        extension = loaded.extension
        least = extension.timing.before_seconds + extension.timing.after_seconds
        least += sum(a.pauses.before + a.pauses.after for a in loaded.method)
        seconds = least * extension.repetitions
        yield f"  {file.stem:<{width}}  {seconds:5.0f} s  {loaded.title}"


def _kinds() -> Iterator[str]:
    width = max(map(len, FAULTS))
    yield "faults, with settings and their defaults"
    for kind, fault in sorted(FAULTS.items()):
        what = (fault.__doc__ or "").split("\n", 1)[0]
        yield f"  {kind:<{width}}  {what}"
        settings = list(_settings_of(fault))
        if settings:
            yield f"  {'':<{width}}  {'; '.join(settings)}"


def _settings_of(fault: type[Fault]) -> Iterator[str]:
    own, shared = dict(fault.model_fields), SustainedFault.model_fields
    own.pop("kind")
    for name, field in sorted(own.items(), key=lambda item: item[0] in shared):
        default = "required" if field.is_required() else repr(field.default)
        yield f"{name}: {default}"
