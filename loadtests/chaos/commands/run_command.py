"""The command `tritonwatch chaos run`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.commands.undo_command import add_run_options, progress, state_of
from loadtests.cli import add_announcers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.cli import Subparsers
    from loadtests.chaos.experiment import Loaded
    from loadtests.chaos.measuring.evidence import Evidence
    from loadtests.chaos.running.runner import RunOptions

EXIT_REFUSED: Final = 2
EXIT_INTERRUPTED: Final = 130
_DESCRIPTION: Final = """\
Run experiments: shipped ones by name, others by file, Chaos Toolkit's own included.
Each sends load all the while, looks at its steady-state hypothesis twice a second, and
undoes whatever it broke, whatever happens. Exit 0: users were served again as promised;
1: a finding; 2: wrong usage, or refused before anything was touched; 3: the numbers are
not the server's."""


def add(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "run",
        help="run experiments",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("experiments", nargs="+", metavar="NAME|FILE")
    parser.add_argument(
        "--allow",
        action="append",
        metavar="TARGET",
        default=[],
        help="a target that may be broken, like process:NAME; shell-style patterns; "
        "may be repeated. The embedded Triton always may",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="only read and check the experiments, by Chaos Toolkit's rules, too",
    )
    parser.add_argument(
        "--export",
        type=Path,
        metavar="DIR",
        help="only write them there as JSON for `chaos run`",
    )
    parser.add_argument(
        "--repetitions", type=int, metavar="N", help="in place of the experiment's"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="in place of the experiment's"
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="DIR",
        help="write the journal of each experiment there",
    )
    add_run_options(parser)
    add_announcers(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from loadtests.chaos import experiment  # noqa: PLC0415 - heavy, only here
    from loadtests.chaos.running.foreign import validate  # noqa: PLC0415

    chosen = [
        _changed(experiment.load(experiment.find(name)), options)
        for name in options.experiments
    ]
    if options.export is not None:
        _export(chosen, options.export)
        return 0
    if options.check:
        for loaded in chosen:
            validate(loaded.document)
            sys.stdout.write(f"{loaded.name}: ok\n")
        return 0
    return _run_all(chosen, options)


def _changed(loaded: Loaded, options: argparse.Namespace) -> Loaded:
    """With what the options say over what the file says."""
    from loadtests.chaos import experiment  # noqa: PLC0415 - heavy, only here

    over = {
        key: getattr(options, key)
        for key in ("repetitions", "seed")
        if getattr(options, key) is not None
    }
    if not over:
        return loaded
    entries: list[dict[str, Any]] = list(loaded.document.get("extensions", ()))
    ours = [entry for entry in entries if entry.get("name") == experiment.NAME]
    others = [entry for entry in entries if entry.get("name") != experiment.NAME]
    changed = {"name": experiment.NAME, **(ours[0] if ours else {}), **over}
    document = {**loaded.document, "extensions": [changed, *others]}
    return loaded.changed(document)


def _export(chosen: Sequence[Loaded], folder: Path) -> None:
    import json  # noqa: PLC0415 - beside the heavy ones

    from exporter.system import whole_file  # noqa: PLC0415
    from loadtests.chaos.running.foreign import with_control  # noqa: PLC0415

    for loaded in chosen:
        file = folder / f"{loaded.name}.json"
        text = json.dumps(with_control(loaded.document), indent=2)
        whole_file.write(file, text.encode(), 0o644)
        sys.stdout.write(f"{file}\n")


def _run_all(chosen: Sequence[Loaded], options: argparse.Namespace) -> int:
    from loadtests.chaos.faults.base import FaultRefusedError  # noqa: PLC0415 - heavy
    from loadtests.chaos.running.runner import run  # noqa: PLC0415
    from loadtests.chaos.targets.base import require_allowed  # noqa: PLC0415

    how = _options(options)
    for loaded in chosen:  # all of them before the first is run
        require_allowed(loaded.experiment.extension.target, how.allow)
    worst = 0
    for loaded in chosen:
        try:
            found = run(loaded, how)
        except FaultRefusedError as error:
            sys.stderr.write(f"tritonwatch: {loaded.name}: refused: {error}\n")
            worst = max(worst, EXIT_REFUSED)
            continue
        worst = max(worst, _report(loaded, found, options))
        if found[-1].status == "interrupted":
            break
    return worst


def _options(options: argparse.Namespace) -> RunOptions:
    from loadtests.announce import announcers_of  # noqa: PLC0415 - heavy, only here
    from loadtests.chaos.running.runner import RunOptions  # noqa: PLC0415

    return RunOptions(
        allow=tuple(options.allow),
        state=state_of(options),
        announcers=announcers_of(
            sidecar=options.sidecar,
            grafana=options.grafana,
            grafana_token_file=options.grafana_token_file,
            otlp=options.otlp,
        ),
        progress=progress(options),
    )


def _report(
    loaded: Loaded, found: Sequence[Evidence], options: argparse.Namespace
) -> int:
    """Write and print what was found; return the exit status."""
    from loadtests.chaos.measuring.findings import findings  # noqa: PLC0415
    from loadtests.chaos.report import repetition_report  # noqa: PLC0415
    from loadtests.chaos.results import journal_file  # noqa: PLC0415 - heavy, only here
    from pages import page_text  # noqa: PLC0415

    judged = [findings(one) for one in found]
    if options.json is not None:
        journal_file.write(options.json / f"{loaded.name}.json", found, judged)
    sys.stdout.write(f"{loaded.name}: {loaded.experiment.title}\n")
    for one in judged:
        sys.stdout.write(
            f"  {repetition_report.repetition_name(one)} {one.verdict.upper()}\n"
        )
        for line in page_text.blocks_text(repetition_report.repetition(one), "    "):
            sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    if found[-1].status == "interrupted":
        return EXIT_INTERRUPTED
    return max(one.exit_code for one in judged)
