"""The commands `tritonwatch chaos run` and `soak`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from loadtests.announce import announcers_among
from loadtests.chaos import experiment
from loadtests.chaos.measuring.observations import NAME
from loadtests.chaos.report.chaos_document import document
from loadtests.chaos.results import journal_file
from loadtests.chaos.results.journal_file import Journal
from loadtests.chaos.results.scorecard import scorecard
from loadtests.chaos.running import runner
from loadtests.chaos.running.runner import RunOptions
from loadtests.chaos.soak import drawn, soak_document, soaked
from loadtests.chaos.targets.chaos_target import require_allowed
from loadtests.chaos.undoing.undo_command import state_of
from loadtests.errors import FaultRefusedError
from pages import page_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from loadtests.chaos.experiment import Loaded
    from loadtests.chaos.measuring.observations import Evidence

EXIT_REFUSED: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_FINDING: Final = 1


def run(options: argparse.Namespace) -> int:
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
    how = RunOptions(
        allow=tuple(options.allow),
        state=state_of(options),
        announcers=announcers_among(options),
        progress=_progress(options),
    )
    for loaded in chosen:  # before the first one runs
        require_allowed(loaded.experiment.extension.target, how.allow)
    worst = 0
    for loaded in chosen:
        try:
            found = runner.run(loaded, how)
        except FaultRefusedError as error:
            sys.stderr.write(f"tritonwatch: {loaded.name}: refused: {error}\n")
            worst = max(worst, EXIT_REFUSED)
            continue
        worst = max(worst, _report(loaded, found, options))
        if found[-1].status == "interrupted":
            break
    return worst


def _report(
    loaded: Loaded, found: Sequence[Evidence], options: argparse.Namespace
) -> int:
    """Write and print the results; return the exit status."""
    journal = _journal(loaded, found, options)
    report = document(scorecard([journal]), journal)
    sys.stdout.write(f"{loaded.name}: {page_text.render(report)}")
    sys.stdout.flush()
    if found[-1].status == "interrupted":
        return EXIT_INTERRUPTED
    return max(one.findings.exit_code for one in journal.repetitions)


def soak(options: argparse.Namespace) -> int:
    """Inject random faults for a while, and check for growth."""
    loaded = drawn(options.minutes, options.seed)
    how = RunOptions(state=state_of(options), progress=_progress(options))
    (seen,) = _journal(loaded, runner.run(loaded, how), options).repetitions
    footprint = soaked(seen)
    sys.stdout.write(page_text.render(soak_document(footprint, seen.findings)))
    return max(seen.findings.exit_code, EXIT_FINDING if footprint.broken else 0)


def _journal(
    loaded: Loaded, found: Sequence[Evidence], options: argparse.Namespace
) -> Journal:
    """Judge each repetition; with `--json`, write the journal."""
    journal = Journal.of(found)
    if options.json is not None:
        journal_file.write(options.json / f"{loaded.name}.json", journal)
    return journal


def _progress(options: argparse.Namespace) -> Callable[[str], None]:
    def write(line: str) -> None:
        if not options.quiet:
            sys.stderr.write(f"chaos: {line}\n")
            sys.stderr.flush()

    return write
