"""The commands `tritonwatch load efficiency` and `tritonwatch load pair`."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from exporter.config import configuration
from exporter.features.energy.energy_settings import PowerSettings
from exporter.features.energy.sources.power_model import ModelSettings
from loadtests.announce import announced
from loadtests.efficiency.efficiency_curve import measure
from loadtests.efficiency.metering import MeteredRun, metered
from loadtests.efficiency.pairs import compare
from loadtests.errors import EXIT_INVALID, EXIT_OK, PlanError
from loadtests.execute import prepared
from loadtests.interrupt import interruptible
from loadtests.json_file import publish
from loadtests.report.efficiency_document import curve_document, pair_document
from loadtests.scenario_options import check_outputs, scenario_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Sequence

    from exporter.features.energy.sources import AnySource
    from loadtests.announce import AnnouncedRun


def run_curve(options: argparse.Namespace) -> int:
    """The curve from full load to idle."""
    with _metering(options, "specpower") as (announced_run, run):
        report = measure(
            run,
            prepared(run.scenario),
            level_seconds=options.level_seconds,
            maximum_per_second=options.maximum,
            follow=announced_run.follow,
        )
    publish(options, curve_document(report), report.model_dump_json(indent=2))
    return EXIT_OK if report.valid else EXIT_INVALID


def run_pair(options: argparse.Namespace) -> int:
    """Compare the efficiency of two models."""
    with _metering(options, "pair") as (announced_run, run):
        announced_run.enter("pairs")
        report = compare(
            run,
            pairs=options.pairs,
            block_seconds=options.block_seconds,
            data=options.labelled,
        )
    publish(options, pair_document(report), report.model_dump_json(indent=2))
    return EXIT_OK if report.valid else EXIT_INVALID


@contextlib.contextmanager
def _metering(
    options: argparse.Namespace, profile: str
) -> Generator[tuple[AnnouncedRun, MeteredRun]]:
    """Announce the run and read power while the block lasts."""
    check_outputs(options.json, options.html)
    scenario, sources = scenario_of(options), _sources(options)
    with (
        announced(options, "load", scenario.name, profile) as run,
        metered(sources) as meter,
        interruptible() as stop,
    ):
        yield run, MeteredRun(scenario, options.concurrency, meter, stop, _log)


def _sources(options: argparse.Namespace) -> Sequence[AnySource]:
    power = configuration.load(options.config).power or PowerSettings()
    if (options.idle_watts is None) != (options.full_watts is None):
        raise PlanError("found only one of --idle-watts and --full-watts; want both")
    if options.idle_watts is None:
        return power.sources
    try:
        modelled = ModelSettings(
            idle_watts=options.idle_watts, full_watts=options.full_watts
        )
    except ValueError as error:
        raise PlanError(str(error), "--idle-watts, --full-watts") from None
    return (*power.sources, modelled)


def _log(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
