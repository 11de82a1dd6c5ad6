"""The command `tritonwatch chaos report`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.cli import Subparsers
    from loadtests.chaos.results.journal_file import Journal
    from loadtests.chaos.results.scorecard import Scorecard, ScorecardChange

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
    journals = _journals(options.journals)
    alone = len(journals) == 1 and options.against is None
    return _one(options, journals[0]) if alone else _card(options, journals)


def _schema(kind: str) -> str:
    from loadtests.chaos.results import journal_file, scorecard  # noqa: PLC0415 - heavy

    return journal_file.schema() if kind == "journal" else scorecard.schema()


def _journals(paths: Sequence[Path]) -> list[Journal]:
    from loadtests.chaos.results import scorecard  # noqa: PLC0415 - heavy, only here

    return [journal for path in paths for journal in scorecard.journals(path)]


def _one(options: argparse.Namespace, journal: Journal) -> int:
    from loadtests.chaos.report import journal_page, text  # noqa: PLC0415 - heavy
    from loadtests.chaos.results.scorecard import scorecard  # noqa: PLC0415

    sys.stdout.write(text.of_journal(journal))
    _write(options.html, journal_page.render(journal) if options.html else "")
    _write(options.json, scorecard([journal]).model_dump_json(indent=2) + "\n")
    codes = {found.exit_code for found in journal.findings}
    return EXIT_FINDING if EXIT_FINDING in codes else max(codes)


def _card(options: argparse.Namespace, journals: Sequence[Journal]) -> int:
    from loadtests.chaos.report import scorecard_page, text  # noqa: PLC0415
    from loadtests.chaos.results import scorecard  # noqa: PLC0415 - heavy, only here

    card = scorecard.scorecard(journals)
    change = None
    if options.against is not None:
        change = scorecard.compared(scorecard.read(options.against), card)
    sys.stdout.write(text.of_scorecard(card, change))
    _write(options.html, scorecard_page.render(card, change))
    _write(options.json, card.model_dump_json(indent=2) + "\n")
    return _code(card, change)


def _code(card: Scorecard, change: ScorecardChange | None) -> int:
    if change is not None:
        return {"worse": EXIT_FINDING, "unknown": EXIT_UNKNOWN}.get(
            change.call, EXIT_OK
        )
    verdicts = {row.verdict for row in card.rows}
    if verdicts & {"finding", "failed"}:
        return EXIT_FINDING
    return EXIT_UNKNOWN if "invalid" in verdicts else EXIT_OK


def _write(path: Path | None, content: str) -> None:
    from loadtests.errors import PlanError  # noqa: PLC0415

    if path is None:
        return
    try:
        path.write_text(content, "utf-8")
    except OSError as error:
        raise PlanError(f"cannot be written: {error.strerror}", str(path)) from None
