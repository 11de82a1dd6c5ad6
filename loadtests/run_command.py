"""The commands `tritonwatch load run` and `tritonwatch load list`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, get_args

from loadtests import result_file
from loadtests.announce import announced
from loadtests.engine import Options
from loadtests.errors import PlanError
from loadtests.execute import execute, prepared
from loadtests.interrupt import interruptible
from loadtests.machine_guard import Guard, GuardLimits, guarded
from loadtests.profiles import AnyProfile
from loadtests.report import run_document
from loadtests.report.objective_report import exit_of
from loadtests.report.run_report import report_of
from loadtests.run_text import Line
from loadtests.scenario_options import check_outputs, scenario_of
from pages import page_text

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from loadtests.result import RunResult
    from loadtests.scenario import Scenario


def run(options: argparse.Namespace) -> int:
    """Execute one load run, announce it and write its result."""
    scenario = scenario_of(options)
    check_outputs(options.json)
    line = None if options.quiet else Line(sys.stderr, scenario)
    profile = scenario.profile
    with announced(options, "load", scenario.name, profile.kind, profile.phases()):
        with Guard(scenario.target.target(), GuardLimits()) as guard:
            result = _measured(scenario, line)
        result = guarded(result, guard.watch(), strict=options.strict)
    failure = None if options.json is None else _write(result, options.json)
    sys.stdout.write(page_text.render(run_document.document(report_of(result))))
    if failure is not None:
        raise failure
    return exit_of(result)


def _write(result: RunResult, file: Path) -> PlanError | None:
    """Write the result before anything is printed; return why it cannot be written."""
    try:
        result_file.write(result, file)
    except PlanError as error:
        return error
    return None


def _measured(scenario: Scenario, line: Line | None) -> RunResult:
    progress = None if line is None else line.update
    mix = prepared(scenario)
    with interruptible() as interrupted:
        result = execute(scenario, mix, Options(progress=progress, stop=interrupted))
    if line is not None:
        line.end()
    return result


def list_profiles(_options: argparse.Namespace) -> int:
    """Print the profiles and their settings."""
    for member in get_args(get_args(AnyProfile)[0]):
        kind = member.model_fields["kind"].default
        sentence = (member.__doc__ or "").strip().partition("\n")[0]
        keys = ", ".join(sorted(member.model_fields.keys() - {"kind"}))
        sys.stdout.write(f"{kind:<10} {sentence}\n{'':<10} --set {keys}\n")
    return 0
