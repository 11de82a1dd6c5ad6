"""The command `tritonwatch load report`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from loadtests import json_file, result_file
from loadtests.capacity import search_report
from loadtests.capacity.search_report import CapacityReport
from loadtests.efficiency.efficiency_report import EfficiencyReport, PairReport
from loadtests.errors import EXIT_FINDING, EXIT_INVALID, EXIT_OK, PlanError
from loadtests.json_file import publish
from loadtests.report import (
    capacity_document,
    comparison_report,
    objective_report,
    run_document,
)
from loadtests.report.comparison_report import Comparison
from loadtests.report.run_report import RunReport, report_of
from loadtests.result import RunResult
from loadtests.scenario_options import check_outputs

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from exporter.settings import Settings

MODELS: Final[dict[str, type[Settings]]] = {
    "run": RunReport,
    "capacity": CapacityReport,
    "comparison": Comparison,
    "efficiency": EfficiencyReport,
    "pair": PairReport,
}
"""Models of the reports, by the kinds that `--schema` accepts."""


def run(options: argparse.Namespace) -> int:
    """A report of one result, or two compared."""
    if options.schema is not None:
        sys.stdout.write(json_file.schema(MODELS[options.schema]) + "\n")
        return EXIT_OK
    if options.before is None:
        raise PlanError(
            "found no file; want a file written by --json of `load run` or `load "
            "capacity`",
            "load report",
        )
    inputs = [path for path in (options.before, options.after) if path is not None]
    check_outputs(options.json, options.html, inputs=inputs)
    before = read(options.before)
    if options.after is not None:
        return _compare(options, before, read(options.after))
    return _report(options, before)


def read(path: Path) -> RunResult | CapacityReport:
    """A run's result, or a capacity report.

    Raises:
        PlanError: it is neither.
    """
    document, source = json_file.read(path), str(path)
    if not isinstance(document, dict):
        raise PlanError("is not a report; want a JSON object", source)
    if document.get("format") == result_file.FORMAT:
        return result_file.from_document(document, source)
    if document.get("format") == search_report.FORMAT:
        document.pop("headroom", None)  # of 0.1.0
        return json_file.validated(CapacityReport, document, source)
    raise PlanError(
        f"found format {document.get('format')!r}; want {result_file.FORMAT} or "
        f"{search_report.FORMAT}, as written by --json of `load run` and `load "
        "capacity`",
        source,
    )


def _report(options: argparse.Namespace, found: RunResult | CapacityReport) -> int:
    if isinstance(found, CapacityReport):
        told = capacity_document.document(found)
        publish(options, told, found.model_dump_json(indent=2))
        return search_report.exit_of(found)
    report = report_of(found)
    publish(options, run_document.document(report), report.model_dump_json(indent=2))
    return objective_report.exit_of(found)


def _compare(
    options: argparse.Namespace,
    before: RunResult | CapacityReport,
    after: RunResult | CapacityReport,
) -> int:
    comparison = _comparison(options, before, after)
    found = comparison_report.document(
        comparison, options.before.name, options.after.name
    )
    publish(options, found, comparison.model_dump_json(indent=2))
    return {"worse": EXIT_FINDING, "unknown": EXIT_INVALID}.get(
        comparison.call, EXIT_OK
    )


def _comparison(
    options: argparse.Namespace,
    before: RunResult | CapacityReport,
    after: RunResult | CapacityReport,
) -> Comparison:
    if isinstance(before, CapacityReport) and isinstance(after, CapacityReport):
        return comparison_report.capacities_compared(
            before, after, tolerance_ratio=options.tolerance
        )
    if isinstance(before, RunResult) and isinstance(after, RunResult):
        return comparison_report.compared(
            before, after, tolerance_ratio=options.tolerance
        )
    raise PlanError(
        "found a run and a capacity report; want two of one kind", "load report"
    )
