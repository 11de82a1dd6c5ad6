"""The commands `tritonwatch load efficiency` and `tritonwatch load pair`."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Final

from exporter.config import configuration
from exporter.features.energy.energy_settings import PowerSettings
from exporter.features.energy.sources.power_model import ModelSettings
from loadtests.announce import AnnouncedRun, announcers_among, announcing
from loadtests.efficiency.efficiency_curve import CurveOptions, measure
from loadtests.efficiency.metering import metered
from loadtests.efficiency.pairs import PairOptions, compare
from loadtests.errors import PlanError
from loadtests.interrupt import interruptible
from loadtests.prepare import prepared
from loadtests.report.efficiency_document import curve_document, pair_document
from loadtests.report.publishing import publish
from loadtests.scenario_options import require_folders, scenario_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Sequence

    from exporter.features.energy.sources import AnySource
    from loadtests.scenario import Scenario

EXIT_OK: Final = 0
EXIT_INVALID: Final = 3


def run_curve(options: argparse.Namespace) -> int:
    """The curve from full load to idle."""
    scenario, sources = _scenario(options), _sources(options)
    run = AnnouncedRun("load", scenario.name, "specpower")
    with (
        _announced(run, options),
        metered(sources) as meter,
        interruptible() as interrupted,
    ):
        report = measure(
            scenario,
            prepared(scenario),
            meter,
            CurveOptions(
                level_seconds=options.level_seconds,
                concurrency=options.concurrency,
                maximum_per_second=options.maximum,
                stop=interrupted,
                log=_log,
                follow=run.follow,
            ),
        )
    publish(options, curve_document(report), report.model_dump_json(indent=2))
    return EXIT_OK if report.valid else EXIT_INVALID


def run_pair(options: argparse.Namespace) -> int:
    """Compare the efficiency of two models."""
    scenario, sources = _scenario(options), _sources(options)
    run = AnnouncedRun("load", scenario.name, "pair")
    with (
        _announced(run, options),
        metered(sources) as meter,
        interruptible() as interrupted,
    ):
        run.enter("pairs")
        report = compare(
            scenario,
            meter,
            PairOptions(
                pairs=options.pairs,
                block_seconds=options.block_seconds,
                concurrency=options.concurrency,
                data=options.labelled,
                stop=interrupted,
                log=_log,
            ),
        )
    publish(options, pair_document(report), report.model_dump_json(indent=2))
    return EXIT_OK if report.valid else EXIT_INVALID


@contextlib.contextmanager
def _announced(run: AnnouncedRun, options: argparse.Namespace) -> Generator[None]:
    """Announce the run; report receivers that could not be reached at its end."""
    try:
        with announcing(run, announcers_among(options)):
            yield
    finally:
        run.report_problems()


def _scenario(options: argparse.Namespace) -> Scenario:
    require_folders(options.json)
    return scenario_of(options)


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
