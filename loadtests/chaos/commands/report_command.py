"""The command `tritonwatch chaos report`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.cli import Subparsers
    from loadtests.chaos.measuring.findings import Verdict
    from loadtests.chaos.results.journal_file import Journal

EXIT_OK: Final = 0
EXIT_FINDING: Final = 1
EXIT_UNKNOWN: Final = 3
_DESCRIPTION: Final = """\
Make a report of the journals that `chaos run --json` wrote: of one, with its course over
time; of several, or of a folder, a scorecard. --against compares it with another folder's
or with a scorecard kept before. Exit 0: nothing speaks against it; 1: a finding, or worse
than before; 3: that cannot be told."""


def add(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "report",
        help="a report of journals, or a scorecard of many",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "journals",
        nargs="*",
        type=Path,
        metavar="JOURNAL|DIR",
        help="journals, or folders of them",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page there")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the scorecard there"
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="FILE|DIR",
        help="what it was before: a folder of journals, a journal or a scorecard",
    )
    parser.add_argument(
        "--schema",
        choices=("journal", "scorecard"),
        help="print the JSON schema of our block of a journal, or of a scorecard, and end",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from loadtests.errors import PlanError  # noqa: PLC0415 - beside the heavy ones

    if options.schema is not None:
        sys.stdout.write(_schema(options.schema) + "\n")
        return EXIT_OK
    if not options.journals:
        raise PlanError(
            "found no journal; want those that `chaos run --json DIR` wrote",
            "chaos report",
        )
    return _report(options, _journals(options.journals))


def _schema(kind: str) -> str:
    from loadtests.chaos.results import journal_file, scorecard  # noqa: PLC0415 - heavy

    return journal_file.schema() if kind == "journal" else scorecard.schema()


def _journals(paths: Sequence[Path]) -> list[Journal]:
    from loadtests.chaos.results import scorecard  # noqa: PLC0415 - heavy, only here

    return [journal for path in paths for journal in scorecard.journals(path)]


def _report(options: argparse.Namespace, journals: Sequence[Journal]) -> int:
    from loadtests.chaos.report.chaos_document import document  # noqa: PLC0415 - heavy
    from loadtests.chaos.results import scorecard  # noqa: PLC0415
    from loadtests.report.publishing import publish  # noqa: PLC0415

    card, change = scorecard.scorecard(journals), None
    if options.against is not None:
        change = scorecard.compared(scorecard.read(options.against), card)
    alone = len(journals) == 1 and change is None
    found = document(card, change, journals[0] if alone else None)
    publish(options, found, card.model_dump_json(indent=2))
    if change is not None:
        calls = {"worse": EXIT_FINDING, "unknown": EXIT_UNKNOWN}
        return calls.get(change.call, EXIT_OK)
    # Of one journal each repetition counts; a row of several has its worst one's verdict.
    return _code(
        {one.verdict for one in (journals[0].findings if alone else card.rows)}
    )


def _code(verdicts: set[Verdict]) -> int:
    if verdicts & {"finding", "failed"}:
        return EXIT_FINDING
    return EXIT_UNKNOWN if "invalid" in verdicts else EXIT_OK
