"""The command `tritonwatch chaos report`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from loadtests import json_file
from loadtests.chaos.report.chaos_document import document
from loadtests.chaos.results import scorecard
from loadtests.chaos.results.journal_file import Block
from loadtests.chaos.results.scorecard import Scorecard
from loadtests.errors import PlanError
from loadtests.report.publishing import publish

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from loadtests.chaos.measuring.findings import Verdict
    from loadtests.chaos.results.journal_file import Journal

EXIT_OK: Final = 0
EXIT_FINDING: Final = 1
EXIT_UNKNOWN: Final = 3


def run(options: argparse.Namespace) -> int:
    """A report of a journal, or the scorecard of several."""
    if options.schema is not None:
        model = Block if options.schema == "journal" else Scorecard
        sys.stdout.write(json_file.schema(model) + "\n")
        return EXIT_OK
    if not options.journals:
        raise PlanError(
            "found no journal; want files written by `chaos run --json DIR`",
            "chaos report",
        )
    journals = [one for path in options.journals for one in scorecard.journals(path)]
    return _report(options, journals)


def _report(options: argparse.Namespace, journals: Sequence[Journal]) -> int:
    card = scorecard.scorecard(journals)
    alone = len(journals) == 1
    found = document(card, journals[0] if alone else None)
    publish(options, found, card.model_dump_json(indent=2))
    # Of one journal each repetition counts; a row of several has its worst one's verdict.
    return _code_of(
        {one.findings.verdict for one in journals[0].repetitions}
        if alone
        else {row.verdict for row in card.rows}
    )


def _code_of(verdicts: set[Verdict]) -> int:
    if verdicts & {"finding", "failed"}:
        return EXIT_FINDING
    return EXIT_UNKNOWN if "invalid" in verdicts else EXIT_OK
