"""The commands `tritonwatch chaos report` and `undo`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from exporter.cli import Subparsers
    from loadtests.chaos.measuring.findings import Verdict
    from loadtests.chaos.results.journal_file import Journal
    from loadtests.chaos.undoing.undo import UndoneRun

EXIT_OK: Final = 0
EXIT_FINDING: Final = 1
EXIT_UNKNOWN: Final = 3
_REPORT: Final = """\
Make a report of the journals that `chaos run --json` wrote: of one, with its course over
time; of several, or of a folder, a scorecard. --against compares it with another folder's
or with a scorecard kept before. Exit 0: nothing speaks against it; 1: a finding, or worse
than before; 3: that cannot be told."""
EXIT_LEFT: Final = 1
_LONGEST_LINE: Final = 10_000


def add_report(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "report",
        help="a report of journals, or a scorecard of many",
        description=_REPORT,
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
    parser.set_defaults(run=_report_journals)


def _report_journals(options: argparse.Namespace) -> int:
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
    from loadtests import json_file  # noqa: PLC0415 - heavy
    from loadtests.chaos.results.journal_file import Block  # noqa: PLC0415
    from loadtests.chaos.results.scorecard import Scorecard  # noqa: PLC0415

    return json_file.schema(Block if kind == "journal" else Scorecard)


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
    return _code_of(
        {one.verdict for one in (journals[0].findings if alone else card.rows)}
    )


def _code_of(verdicts: set[Verdict]) -> int:
    if verdicts & {"finding", "failed"}:
        return EXIT_FINDING
    return EXIT_UNKNOWN if "invalid" in verdicts else EXIT_OK


def add_undo(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "undo",
        help="undo what experiments have left",
        description="Undo every fault of every experiment whose runner is gone. May be "
        "run at any time and any number of times. Exit 1 where something is left.",
    )
    add_state(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="undo those of experiments that still run, too",
    )
    parser.set_defaults(run=_undo)


def add_state(parser: argparse.ArgumentParser) -> None:
    """The option that says where undo journals lie."""
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="undo journals; default $XDG_STATE_HOME/tritonwatch/chaos, and "
        "~/.local/state where that is not set",
    )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that run experiments."""
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_state(parser)


def state_of(options: argparse.Namespace) -> Path:
    """Return the folder of undo journals."""
    from loadtests.chaos.undoing.undo_journal import default_folder  # noqa: PLC0415 - heavy

    state: Path | None = options.state
    return state or default_folder()


def progress(options: argparse.Namespace) -> Callable[[str], None]:
    """Return what prints a line of progress."""

    def tell(line: str) -> None:
        if not options.quiet:
            sys.stderr.write(f"chaos: {line}\n")
            sys.stderr.flush()

    return tell


def _undo(options: argparse.Namespace) -> int:
    from loadtests.chaos.undoing.undo import undo_all  # noqa: PLC0415 - heavy

    folder = state_of(options)
    runs = undo_all(folder, force=options.force)
    for run in runs:
        sys.stdout.write(_text(run))
    if not runs:
        sys.stdout.write(f"nothing to undo in {folder}\n")
    return EXIT_LEFT if any(run.problems for run in runs) else EXIT_OK


def _text(run: UndoneRun) -> str:
    """Return the outcome of a journal, in lines."""
    if run.busy:
        busy = f"{run.run}: its experiment still runs; --force undoes it all the same"
        return f"{_printable(busy)}\n"
    lines = [f"{run.run}: undone {kind}" for kind in run.undone]
    lines += [f"{run.run}: LEFT {problem}" for problem in run.problems]
    if not lines:
        lines = [f"{run.run}: nothing was in effect"]
    return "".join(f"{_printable(line)}\n" for line in lines)


def _printable(line: str) -> str:
    """Without control characters, which a terminal would obey."""
    return "".join(
        c if c.isprintable() else ascii(c)[1:-1] for c in line[:_LONGEST_LINE]
    )
