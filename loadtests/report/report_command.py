"""The command `tritonwatch load report`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from exporter.cli import Subparsers
    from exporter.settings import Settings
    from loadtests.capacity.search_report import CapacityReport
    from loadtests.report.comparison_report import Comparison
    from loadtests.report.run_report import RunReport
    from loadtests.result import RunResult

EXIT_OK: Final = 0
EXIT_FINDING: Final = 1
EXIT_UNKNOWN: Final = 3
SCHEMAS: Final = ("run", "capacity", "comparison", "efficiency", "pair")
"""Kinds of reports whose schema is published."""
_DESCRIPTION: Final = """\
Make a report of what `load run --json` or `load capacity --json` wrote, or compare two
of them: exit 0 if the second is not worse, 1 if it is, 3 if that cannot be told. The
error rate of calling something worse that is the same is 5 % over all figures."""


def add(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "report",
        help="a report of a result, or two results compared",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("before", nargs="?", type=Path, metavar="RESULT")
    parser.add_argument(
        "after",
        nargs="?",
        type=Path,
        metavar="SECOND",
        help="compare it with the first",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write it as JSON")
    parser.add_argument(
        "--tolerance",
        type=_share,
        default=0.05,
        metavar="SHARE",
        help="smaller changes do not matter (default 0.05)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of resampling"
    )
    parser.add_argument(
        "--schema",
        choices=SCHEMAS,
        help="print the JSON schema of a kind of report, and end",
    )
    parser.set_defaults(run=_run)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; want a share like 0.05")
    return value


def _run(options: argparse.Namespace) -> int:
    from loadtests.errors import PlanError  # noqa: PLC0415 - beside the heavy ones

    if options.schema is not None:
        sys.stdout.write(schema(options.schema) + "\n")
        return EXIT_OK
    if options.before is None:
        raise PlanError(
            "found no file; want what --json of `load run` or `load capacity` wrote",
            "load report",
        )
    before = read(options.before)
    if options.after is not None:
        return _compare(options, before, read(options.after))
    return _report(options, before)


def schema(kind: str) -> str:
    """The published JSON schema of one of `SCHEMAS`."""
    from loadtests import json_file  # noqa: PLC0415 - heavy, only here
    from loadtests.capacity.search_report import CapacityReport  # noqa: PLC0415
    from loadtests.efficiency.efficiency_report import (  # noqa: PLC0415
        EfficiencyReport,
        PairReport,
    )
    from loadtests.report.comparison_report import Comparison  # noqa: PLC0415
    from loadtests.report.run_report import RunReport  # noqa: PLC0415

    models: dict[str, type[Settings]] = {
        "run": RunReport,
        "capacity": CapacityReport,
        "comparison": Comparison,
        "efficiency": EfficiencyReport,
        "pair": PairReport,
    }
    return json_file.schema(models[kind])


def read(path: Path) -> RunResult | CapacityReport:
    """A run's result, or a capacity report.

    Raises:
        PlanError: it is neither.
    """
    from loadtests import json_file, result_file  # noqa: PLC0415
    from loadtests.capacity import search_report  # noqa: PLC0415
    from loadtests.errors import PlanError  # noqa: PLC0415

    document, source = json_file.read(path), str(path)
    if not isinstance(document, dict):
        raise PlanError("is no report; want a JSON object", source)
    if document.get("format") == result_file.FORMAT:
        return result_file.from_document(document, source)
    if document.get("format") == search_report.FORMAT:
        return json_file.validated(search_report.CapacityReport, document, source)
    raise PlanError(
        f"found format {document.get('format')!r}; want {result_file.FORMAT} or "
        f"{search_report.FORMAT}, as --json of `load run` and `load capacity` write",
        source,
    )


def _report(options: argparse.Namespace, found: RunResult | CapacityReport) -> int:
    from loadtests.capacity.search_report import CapacityReport  # noqa: PLC0415
    from loadtests.report import capacity_document, run_document  # noqa: PLC0415
    from loadtests.report.publishing import publish  # noqa: PLC0415
    from loadtests.report.run_report import report_of  # noqa: PLC0415

    report: RunReport | CapacityReport
    if isinstance(found, CapacityReport):
        report, document = found, capacity_document.document(found)
    else:
        report = run = report_of(found)
        document = run_document.document(run)
    publish(options, document, report.model_dump_json(indent=2))
    return EXIT_OK if report.valid else EXIT_UNKNOWN


def _compare(
    options: argparse.Namespace,
    before: RunResult | CapacityReport,
    after: RunResult | CapacityReport,
) -> int:
    from loadtests.report.comparison_report import document  # noqa: PLC0415
    from loadtests.report.publishing import publish  # noqa: PLC0415

    comparison = _comparison(options, before, after)
    found = document(comparison, options.before.name, options.after.name)
    publish(options, found, comparison.model_dump_json(indent=2))
    return {"worse": EXIT_FINDING, "unknown": EXIT_UNKNOWN}.get(
        comparison.call, EXIT_OK
    )


def _comparison(
    options: argparse.Namespace,
    before: RunResult | CapacityReport,
    after: RunResult | CapacityReport,
) -> Comparison:
    from loadtests.capacity.search_report import CapacityReport  # noqa: PLC0415
    from loadtests.errors import PlanError  # noqa: PLC0415
    from loadtests.report import comparison_report  # noqa: PLC0415

    first, second = (isinstance(found, CapacityReport) for found in (before, after))
    if first != second:
        raise PlanError(
            "found a run and a capacity report; want two of one kind", "load report"
        )
    if isinstance(before, CapacityReport) and isinstance(after, CapacityReport):
        return comparison_report.capacities_compared(
            before, after, tolerance_ratio=options.tolerance
        )
    assert not isinstance(before, CapacityReport)  # noqa: S101 - both are runs
    assert not isinstance(after, CapacityReport)  # noqa: S101
    return comparison_report.compared(
        before, after, tolerance_ratio=options.tolerance, seed=options.seed
    )
