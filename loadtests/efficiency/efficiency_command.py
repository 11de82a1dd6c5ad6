"""The commands `tritonwatch load efficiency` and `tritonwatch load pair`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtests.command_options import add_announcers, add_target

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from exporter.cli import Subparsers
    from exporter.features.energy.sources import AnySource
    from loadtests.announce import AnnouncedRun
    from loadtests.efficiency.efficiency_report import EfficiencyReport, PairReport
    from loadtests.scenario import Scenario

EXIT_OK: Final = 0
EXIT_INVALID: Final = 3
_CURVE: Final = """\
Find out how fast the server goes, then offer 100, 90 ... 10 % of that and nothing, and
read power meanwhile: joules and inferences a second for each watt at each level, and
SPECpower's score over all of them. Exit 0 ok; 2: wrong usage; 3: the numbers are not to
be trusted, and why."""
_PAIR: Final = """\
Run two models, like fp32 and int8, in blocks one right after the other: speed-up, energy
ratio and, with labelled rows, accuracy lost, each with its 95 % interval. The first
--model is the reference. Exit codes as for efficiency."""


def add(commands: Subparsers) -> None:
    """Add both."""
    for name, told, description, run in (
        ("efficiency", "joules and QPS/W from full load to idle", _CURVE, _run_curve),
        ("pair", "one model beside another: speed, energy, accuracy", _PAIR, _run_pair),
    ):
        parser = commands.add_parser(
            name,
            help=told,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_target(parser)
        _add_power(parser)
        parser.add_argument("--concurrency", type=int, default=8, metavar="N")
        parser.add_argument(
            "--json", type=Path, metavar="FILE", help="write the report there"
        )
        parser.add_argument(
            "--html", type=Path, metavar="FILE", help="write the page there"
        )
        add_announcers(parser)
        parser.set_defaults(run=run)
        (_add_curve if name == "efficiency" else _add_pair)(parser)


def _add_power(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a sidecar's file, for its `power:`"
    )
    parser.add_argument(
        "--idle-watts", type=float, metavar="W", help="modelled, where nothing measures"
    )
    parser.add_argument(
        "--full-watts", type=float, metavar="W", help="with --idle-watts"
    )


def _add_curve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--level-seconds", type=float, default=10.0, metavar="S", help="SPECpower: 240"
    )
    parser.add_argument(
        "--maximum", type=float, metavar="R", help="requests a second; not calibrated"
    )


def _add_pair(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=10, metavar="N")
    parser.add_argument("--block-seconds", type=float, default=2.0, metavar="S")
    parser.add_argument(
        "--labelled", type=Path, metavar="FILE", help="npz: inputs and `label`"
    )


def _run_curve(options: argparse.Namespace) -> int:
    from loadtests.announce import AnnouncedRun  # noqa: PLC0415 - heavy
    from loadtests.efficiency.efficiency_curve import CurveOptions, measure  # noqa: PLC0415
    from loadtests.efficiency.efficiency_document import (  # noqa: PLC0415
        curve_document,
    )
    from loadtests.efficiency.metering import metered  # noqa: PLC0415
    from loadtests.interrupt import interruptible  # noqa: PLC0415
    from loadtests.prepare import prepared  # noqa: PLC0415
    from loadtests.report.publishing import publish  # noqa: PLC0415

    scenario, sources = _scenario(options), _sources(options)
    run = AnnouncedRun("load", scenario.name, "specpower")
    with (
        _told(run, options),
        prepared(scenario) as mix,
        metered(sources) as meter,
        interruptible() as asked,
    ):
        report = measure(
            scenario,
            mix,
            meter,
            CurveOptions(
                level_seconds=options.level_seconds,
                concurrency=options.concurrency,
                maximum_per_second=options.maximum,
                stop=asked,
                tell=_tell,
                follow=run.follow,
            ),
        )
        scores = ", ".join(f"{k} {v:.4g}" for k, v in report.score.items())
        _end(run, report, f"SPECpower's score {scores or 'unknown'} inferences/s/W")
    publish(options, curve_document(report), report.model_dump_json(indent=2))
    return EXIT_OK if report.valid else EXIT_INVALID


def _run_pair(options: argparse.Namespace) -> int:
    from loadtests.announce import AnnouncedRun  # noqa: PLC0415 - heavy
    from loadtests.efficiency.efficiency_document import (  # noqa: PLC0415
        pair_document,
    )
    from loadtests.efficiency.metering import metered  # noqa: PLC0415
    from loadtests.efficiency.pairs import PairOptions, compare  # noqa: PLC0415
    from loadtests.interrupt import interruptible  # noqa: PLC0415
    from loadtests.report.publishing import publish  # noqa: PLC0415

    scenario, sources = _scenario(options), _sources(options)
    run = AnnouncedRun("load", scenario.name, "pair")
    with _told(run, options), metered(sources) as meter, interruptible() as asked:
        run.enter("pairs")
        report = compare(
            scenario,
            meter,
            PairOptions(
                pairs=options.pairs,
                block_seconds=options.block_seconds,
                concurrency=options.concurrency,
                data=options.labelled,
                stop=asked,
                tell=_tell,
            ),
        )
        ratio = report.speed_up.estimate
        _end(run, report, f"{report.candidate} {ratio:.3g} x {report.reference}")
    publish(options, pair_document(report), report.model_dump_json(indent=2))
    return EXIT_OK if report.valid else EXIT_INVALID


@contextlib.contextmanager
def _told(run: AnnouncedRun, options: argparse.Namespace) -> Generator[None]:
    """Others are told of the run; who could not be, is told at its end."""
    from loadtests.announce import announcers_among, telling  # noqa: PLC0415

    try:
        with telling(run, announcers_among(options)):
            yield
    finally:
        for problem in run.problems:
            _tell(f"tritonwatch: {problem}")


def _end(run: AnnouncedRun, report: EfficiencyReport | PairReport, found: str) -> None:
    from loadtests.announce import Ending  # noqa: PLC0415

    verdict = "VALID" if report.valid else f"INVALID: {'; '.join(report.reasons)}"
    attributes = {"tritonwatch.run.verdict": verdict}
    run.ended(Ending(f"{found}, {verdict}", report.valid, attributes))


def _scenario(options: argparse.Namespace) -> Scenario:
    from loadtests.scenario_options import require_folders, scenario_of  # noqa: PLC0415

    # What `load run` asks for and these make up themselves.
    for name in ("profile", "rate", "set", "duration", "name"):
        setattr(options, name, None)
    require_folders(options.json)
    return scenario_of(options)


def _sources(options: argparse.Namespace) -> Sequence[AnySource]:
    from exporter.config import configuration  # noqa: PLC0415
    from exporter.features.energy.energy_settings import PowerSettings  # noqa: PLC0415
    from exporter.features.energy.sources.power_model import ModelSettings  # noqa: PLC0415
    from loadtests.errors import PlanError  # noqa: PLC0415

    power = configuration.load(options.config).power or PowerSettings()
    if (options.idle_watts is None) != (options.full_watts is None):
        raise PlanError("found one of --idle-watts and --full-watts; want both")
    if options.idle_watts is None:
        return power.sources
    try:
        modelled = ModelSettings(
            idle_watts=options.idle_watts, full_watts=options.full_watts
        )
    except ValueError as error:
        raise PlanError(str(error), "--idle-watts, --full-watts") from None
    return (*power.sources, modelled)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
