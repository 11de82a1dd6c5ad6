"""The command `tritonwatch load capacity`."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from exporter.errors import ConfigError
from exporter.features.runs.run_board import notice_of
from loadtests import scenario_options
from loadtests.announce import announced, post_json
from loadtests.capacity import campaign
from loadtests.capacity.campaign import CampaignSettings
from loadtests.capacity.guarded_runs import Bench
from loadtests.capacity.search_report import compiled, exit_of
from loadtests.errors import PlanError, validation_problems
from loadtests.execute import prepared
from loadtests.interrupt import interruptible
from loadtests.json_file import publish
from loadtests.report.capacity_document import document
from loadtests.scenario_options import check_outputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.announce import AnnouncedRun
    from loadtests.capacity.search_report import CapacityReport
    from loadtests.scenario import Scenario


def run(options: argparse.Namespace) -> int:
    """Search, print the result, and return the exit status."""
    scenario, settings = scenario_of(options), settings_of(options)
    check_outputs(options.json, options.html)
    with announced(options, "capacity", scenario.name, scenario.profile.kind) as run:
        report = _measured(options, scenario, settings, run)
        publish(options, document(report), report.model_dump_json(indent=2))
        if options.sidecar is not None:
            _report_to(options.sidecar, report, run)
    return exit_of(report)


def _measured(
    options: argparse.Namespace,
    scenario: Scenario,
    settings: CampaignSettings,
    run: AnnouncedRun,
) -> CapacityReport:
    started_at = time.time()
    with interruptible() as interrupted:
        mix = prepared(scenario)
        bench = Bench(
            scenario,
            mix,
            settings.guard,
            _progress_log(options.quiet),
            interrupted,
            run.enter,
        )
        try:
            found = campaign.run(bench, settings)
        finally:
            bench.server.close()
    return compiled(bench, settings, found, started_at=started_at)


def scenario_of(options: argparse.Namespace) -> Scenario:
    """Return the scenario of the options, with the profile of a search.

    Raises:
        ConfigError: with every problem found.
    """
    values = {**vars(options), "profile": "poisson"}
    scenario = scenario_options.scenario_of(argparse.Namespace(**values))
    if scenario.slo is None:
        raise PlanError('found no --slo; want one like "p99<20ms,errors<0.1%"')
    return scenario


def settings_of(options: argparse.Namespace) -> CampaignSettings:
    """Return the search settings of the options, checked.

    Raises:
        ConfigError: a number is out of range.
    """
    search = {
        "budget_seconds": options.budget,
        "run_seconds": options.run_seconds,
        "repetitions": options.repetitions,
        "precision_ratio": options.precision,
        "most_rate": options.max_rate,
    }
    given: dict[str, Any] = {
        "search": {key: value for key, value in search.items() if value is not None}
    }
    if options.other_cpu is not None:
        given["guard"] = {"other_cpu_ratio": options.other_cpu}
    try:
        return CampaignSettings.model_validate(given)
    except ValidationError as error:
        raise ConfigError("", validation_problems(error)) from None


def _progress_log(quiet: bool) -> Callable[[str], None]:  # noqa: FBT001 - the option itself
    began = time.monotonic()

    def log(line: str) -> None:
        if not quiet:
            elapsed = time.monotonic() - began
            sys.stderr.write(f"{elapsed:6.1f} s  {line}\n")
            sys.stderr.flush()

    return log


def _report_to(sidecar: str, report: CapacityReport, run: AnnouncedRun) -> None:
    """Send the result to the sidecar, with its validity."""
    try:
        notice = notice_of(report.model_dump()).model_dump(exclude_none=True)
    except ValueError as error:  # a mix whose names are longer than a label may be
        run.note(f"the capacity was not sent to the sidecar: {error}")
        return
    url = f"{sidecar.rstrip('/')}/v1/capacity"
    post_json(url, notice, run)
