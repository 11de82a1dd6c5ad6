"""The commands `tritonwatch load efficiency` and `tritonwatch load pair`."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporter.config import configuration
from exporter.features.energy.energy_settings import PowerSettings
from exporter.features.energy.sources.power_model import ModelSettings
from loadtests.announce import announced
from loadtests.efficiency.efficiency_curve import CurveOptions, measure
from loadtests.efficiency.metering import metered
from loadtests.efficiency.pairs import PairOptions, compare
from loadtests.errors import PlanError
from loadtests.execute import prepared
from loadtests.interrupt import interruptible
from loadtests.json_file import publish
from loadtests.report.efficiency_document import curve_document, pair_document
from loadtests.scenario_options import require_folders, scenario_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Generator, Sequence

    from exporter.features.energy.sources import AnySource
    from loadtests.announce import AnnouncedRun
    from loadtests.efficiency.metering import PowerMeter
    from loadtests.scenario import Scenario

EXIT_OK: Final = 0
EXIT_INVALID: Final = 3


@dataclass(frozen=True, slots=True)
class _Bench:
    """What both commands measure with."""

    scenario: Scenario
    meter: PowerMeter
    run: AnnouncedRun
    interrupted: Callable[[], bool]


def run_curve(options: argparse.Namespace) -> int:
    """The curve from full load to idle."""
    with _bench(options, "specpower") as bench:
        report = measure(
            bench.scenario,
            prepared(bench.scenario),
            bench.meter,
            CurveOptions(
                level_seconds=options.level_seconds,
                concurrency=options.concurrency,
                maximum_per_second=options.maximum,
                stop=bench.interrupted,
                log=_log,
                follow=bench.run.follow,
            ),
        )
    publish(options, curve_document(report), report.model_dump_json(indent=2))
    return EXIT_OK if report.valid else EXIT_INVALID


def run_pair(options: argparse.Namespace) -> int:
    """Compare the efficiency of two models."""
    with _bench(options, "pair") as bench:
        bench.run.enter("pairs")
        report = compare(
            bench.scenario,
            bench.meter,
            PairOptions(
                pairs=options.pairs,
                block_seconds=options.block_seconds,
                concurrency=options.concurrency,
                data=options.labelled,
                stop=bench.interrupted,
                log=_log,
            ),
        )
    publish(options, pair_document(report), report.model_dump_json(indent=2))
    return EXIT_OK if report.valid else EXIT_INVALID


@contextlib.contextmanager
def _bench(options: argparse.Namespace, profile: str) -> Generator[_Bench]:
    """Announce the run and read power while the block lasts."""
    require_folders(options.json)
    scenario, sources = scenario_of(options), _sources(options)
    with (
        announced(options, "load", scenario.name, profile) as run,
        metered(sources) as meter,
        interruptible() as interrupted,
    ):
        yield _Bench(scenario, meter, run, interrupted)


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
