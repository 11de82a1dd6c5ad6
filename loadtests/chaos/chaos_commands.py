"""The commands `tritonwatch chaos`: list, run, soak, report, undo."""

from __future__ import annotations

import sys
import tempfile
from typing import TYPE_CHECKING, Final

from loadtests import json_file
from loadtests.announce import sidecars_of
from loadtests.chaos import experiment
from loadtests.chaos.faults import FAULTS
from loadtests.chaos.faults.fault import SustainedFault
from loadtests.chaos.measuring.observations import NAME
from loadtests.chaos.report.chaos_document import document, soak_document
from loadtests.chaos.results import journal_file
from loadtests.chaos.results.journal_file import Block, Journal
from loadtests.chaos.results.scorecard import Scorecard, scorecard
from loadtests.chaos.results.scorecard import journals as journals_of
from loadtests.chaos.running.repetition import RunOptions, run
from loadtests.chaos.soak import drawn
from loadtests.chaos.targets.chaos_target import require_allowed
from loadtests.chaos.undoing.undo import undo_all
from loadtests.chaos.undoing.undo_journal import default_folder
from loadtests.errors import (
    EXIT_FINDING,
    EXIT_INVALID,
    EXIT_OK,
    EXIT_USAGE,
    FaultRefusedError,
    PlanError,
)
from loadtests.json_file import publish
from pages import page_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from loadtests.chaos.experiment import Loaded
    from loadtests.chaos.faults.fault import Fault
    from loadtests.chaos.measuring.findings import Verdict
    from loadtests.chaos.undoing.undo import UndoneRun

EXIT_INTERRUPTED: Final = 130
_FROM_BEST: Final = (
    EXIT_OK,
    EXIT_INVALID,
    EXIT_USAGE,
    EXIT_FINDING,
    EXIT_INTERRUPTED,
)
"""A finding of one experiment comes before an undecided one."""
_LONGEST_LINE: Final = 10_000


def list_experiments(options: argparse.Namespace) -> int:
    """Print shipped experiments, and faults with their settings."""
    for line in _kinds() if options.faults else (*_shipped(), "", *_kinds()):
        sys.stdout.write(f"{line}\n")
    return 0


def _shipped() -> Iterator[str]:
    files = experiment.names()
    width = max((len(file.stem) for file in files), default=0)
    yield "experiments: tritonwatch chaos run NAME"
    for file in files:
        loaded = experiment.load(file).experiment
        extension = loaded.extension
        least = extension.timing.before_seconds + extension.timing.after_seconds
        least += sum(a.pauses.before + a.pauses.after for a in loaded.method)
        seconds = least * extension.repetitions
        yield f"  {file.stem:<{width}}  {seconds:5.0f} s  {loaded.title}"


def _kinds() -> Iterator[str]:
    width = max(map(len, FAULTS))
    yield "faults, with settings and their defaults"
    for kind, fault in sorted(FAULTS.items()):
        what = (fault.__doc__ or "").split("\n", 1)[0]
        yield f"  {kind:<{width}}  {what}"
        settings = list(_settings_of(fault))
        if settings:
            yield f"  {'':<{width}}  {'; '.join(settings)}"


def _settings_of(fault: type[Fault]) -> Iterator[str]:
    own, shared = dict(fault.model_fields), SustainedFault.model_fields
    own.pop("kind")
    for name, field in sorted(own.items(), key=lambda item: item[0] in shared):
        default = "required" if field.is_required() else repr(field.default)
        yield f"{name}: {default}"


def run_experiments(options: argparse.Namespace) -> int:
    """Run experiments, or only check them."""
    chosen = [
        _changed(experiment.load(experiment.find(name)), options)
        for name in options.experiments
    ]
    if options.check:
        for loaded in chosen:
            sys.stdout.write(f"{loaded.name}: ok\n")
        return 0
    return _run_all(chosen, options)


def _changed(loaded: Loaded, options: argparse.Namespace) -> Loaded:
    """Return the experiment with the options' values over the file's."""
    over = {
        key: getattr(options, key)
        for key in ("repetitions", "seed")
        if getattr(options, key) is not None
    }
    if not over:
        return loaded
    entries = [
        {**entry, **over} if entry.get("name") == NAME else entry
        for entry in loaded.document["extensions"]
    ]
    return loaded.changed({**loaded.document, "extensions": entries})


def _run_all(chosen: Sequence[Loaded], options: argparse.Namespace) -> int:
    _require_folder(options.json)
    how = RunOptions(
        allow=tuple(options.allow),
        state=state_of(options),
        sidecars=sidecars_of(options),
        progress=_progress(options),
    )
    for loaded in chosen:  # before the first one runs
        require_allowed(loaded.experiment.touched, how.allow)
    statuses = [EXIT_OK]
    for loaded in chosen:
        try:
            found = run(loaded, how)
        except FaultRefusedError as error:
            sys.stderr.write(f"tritonwatch: {loaded.name}: refused: {error}\n")
            statuses.append(EXIT_USAGE)
            continue
        journal = Journal.of(found)
        report = document(scorecard([journal]), journal)
        text = f"{loaded.name}: {page_text.render(report)}"
        statuses.append(_report_run(loaded.name, journal, text, options))
        if found[-1].status == "interrupted" or found[-1].leftovers:
            break
    return worst_of(statuses)


def worst_of(statuses: Iterable[int]) -> int:
    """Return the exit status of several experiments."""
    return max(statuses, key=_FROM_BEST.index)


def _report_run(
    name: str, journal: Journal, text: str, options: argparse.Namespace
) -> int:
    """Print and write the results; return the exit status."""
    sys.stdout.write(text)
    sys.stdout.flush()
    if options.json is not None:
        journal_file.write(options.json / f"{name}.json", journal)
    if journal.repetitions[-1].status == "interrupted":
        return EXIT_INTERRUPTED
    return _code_of({one.findings.verdict for one in journal.repetitions})


def soak(options: argparse.Namespace) -> int:
    """Inject random faults for a while, and check for growth."""
    _require_folder(options.json)
    loaded = drawn(options.minutes, options.seed)
    how = RunOptions(state=state_of(options), progress=_progress(options))
    journal = Journal.of(run(loaded, how))
    text = page_text.render(soak_document(journal.repetitions[0]))
    return _report_run(loaded.name, journal, text, options)


def _require_folder(folder: Path | None) -> None:
    """Make the folder of the journals before an experiment of minutes.

    Raises:
        PlanError: nothing can be written to it.
    """
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise PlanError(
            f"cannot be written to: {error.strerror}", str(folder)
        ) from None


def _progress(options: argparse.Namespace) -> Callable[[str], None]:
    def write(line: str) -> None:
        if not options.quiet:
            sys.stderr.write(f"chaos: {line}\n")
            sys.stderr.flush()

    return write


def report(options: argparse.Namespace) -> int:
    """A report of a journal, or the scorecard of several."""
    if options.schema is not None:
        model = Block if options.schema == "journal" else Scorecard
        sys.stdout.write(json_file.schema(model) + "\n")
        return 0
    journals = [one for path in options.journals for one in journals_of(path)]
    card = scorecard(journals)
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
    return EXIT_INVALID if "invalid" in verdicts else 0


def state_of(options: argparse.Namespace) -> Path:
    """Return the folder of undo journals."""
    state: Path | None = options.state
    return state or default_folder()


def undo(options: argparse.Namespace) -> int:
    """Undo the faults that experiments have left."""
    folder = state_of(options)
    absent = not folder.is_dir()
    if absent and options.state is not None:
        raise PlanError("found no such folder", str(folder))
    runs = undo_all(folder, force=options.force)
    for one in runs:
        sys.stdout.write(_text(one))
    if not runs:
        other = "; another user's journals are in that user's folder" if absent else ""
        sys.stdout.write(f"nothing to undo in {folder}{other}\n")
    if any(one.problems for one in runs):
        return EXIT_FINDING
    return EXIT_INVALID if any(one.busy for one in runs) else 0


def _text(run: UndoneRun) -> str:
    """Return the outcome of a journal, in lines."""
    if run.busy:
        busy = f"{run.run}: its experiment still runs; --force undoes its faults anyway"
        return f"{_printable(busy)}\n"
    lines = [f"{run.run}: undone {k}{FAULTS[k].after_undo}" for k in run.undone]
    lines += [f"{run.run}: LEFT {problem}" for problem in run.problems]
    if run.problems and run.path.exists():
        lines.append(f"{run.run}: what is left stays recorded in {run.path}")
    if not lines:
        lines = [f"{run.run}: nothing was in effect"]
    return "".join(f"{_printable(line)}\n" for line in lines)


def _printable(line: str) -> str:
    """Return the line without control characters, which a terminal would obey."""
    return "".join(
        c if c.isprintable() else ascii(c)[1:-1] for c in line[:_LONGEST_LINE]
    )
