"""The commands `tritonwatch chaos list`, `run` and `soak`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.journal_commands import add_run_options, progress, state_of
from loadtests.command_options import add_announcers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from exporter.cli import Subparsers
    from loadtests.chaos.experiment import Loaded
    from loadtests.chaos.faults.fault import Fault
    from loadtests.chaos.measuring.observations import Evidence
    from loadtests.chaos.running.runner import RunOptions

EXIT_REFUSED: Final = 2
EXIT_INTERRUPTED: Final = 130
_RUN: Final = """\
Run experiments: shipped ones by name, others by file, Chaos Toolkit's own included.
Each sends load all the while, looks at its steady-state hypothesis twice a second, and
undoes whatever it broke, whatever happens. Exit 0: users were served again as promised;
1: a finding; 2: wrong usage, or refused before anything was touched; 3: the numbers are
not the server's."""
EXIT_FINDING: Final = 1
_MOST_MINUTES: Final = 240.0
_SOAK: Final = """\
Break one thing after another, drawn from a seed, on a Triton of the run's own with a
sidecar beside it; see that users are served again after each, and that the sidecar
neither falls over nor grows. Exit 0: so it was; 1: a finding."""


def add_list(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "list", help="shipped experiments, and faults with their settings"
    )
    parser.add_argument("--faults", action="store_true", help="only the faults")
    parser.set_defaults(run=_list)


def _list(options: argparse.Namespace) -> int:
    for line in _kinds() if options.faults else (*_shipped(), "", *_kinds()):
        sys.stdout.write(f"{line}\n")
    return 0


def _shipped() -> Iterator[str]:
    from loadtests.chaos import experiment  # noqa: PLC0415 - heavy, only here

    files = experiment.names()
    width = max((len(file.stem) for file in files), default=0)
    yield "experiments: tritonwatch chaos run NAME"
    for file in files:
        loaded = experiment.load(file).experiment
        extension = loaded.extension
        least = extension.timing.before_seconds + extension.timing.after_seconds
        least += sum(a.pauses.before + a.pauses.after for a in loaded.method)
        rounds = extension.repetitions
        rounds *= len(extension.sweep.values) if extension.sweep else 1
        yield f"  {file.stem:<{width}}  {least * rounds:5.0f} s  {loaded.title}"


def _kinds() -> Iterator[str]:
    from loadtests.chaos.faults import FAULTS  # noqa: PLC0415 - heavy, only here

    width = max(map(len, FAULTS))
    yield "faults, with settings and their defaults"
    for kind, fault in sorted(FAULTS.items()):
        what = (fault.__doc__ or "").split("\n", 1)[0]
        yield f"  {kind:<{width}}  {what}"
        settings = list(_settings_of(fault))
        if settings:
            yield f"  {'':<{width}}  {'; '.join(settings)}"


def _settings_of(fault: type[Fault]) -> Iterator[str]:
    from loadtests.chaos.faults.fault import SustainedFault  # noqa: PLC0415 - heavy

    own, shared = dict(fault.model_fields), SustainedFault.model_fields
    own.pop("kind")
    for name, field in sorted(own.items(), key=lambda item: item[0] in shared):
        default = "required" if field.is_required() else repr(field.default)
        mark = " (strength)" if name == fault.strength else ""
        yield f"{name}: {default}{mark}"


def add_run(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "run",
        help="run experiments",
        description=_RUN,
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
    parser.set_defaults(run=_run_experiments)


def _run_experiments(options: argparse.Namespace) -> int:
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
    from loadtests.chaos.faults.fault import FaultRefusedError  # noqa: PLC0415 - heavy
    from loadtests.chaos.running.runner import run  # noqa: PLC0415
    from loadtests.chaos.targets.chaos_target import require_allowed  # noqa: PLC0415

    how = _run_options(options)
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


def _run_options(options: argparse.Namespace) -> RunOptions:
    from loadtests.announce import announcers_among  # noqa: PLC0415 - heavy, only here
    from loadtests.chaos.running.runner import RunOptions  # noqa: PLC0415

    return RunOptions(
        allow=tuple(options.allow),
        state=state_of(options),
        announcers=announcers_among(options),
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


def add_soak(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "soak",
        help="random faults for a while, and whether anything grows",
        description=_SOAK,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=_minutes, default=20.0, metavar="M")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the draw")
    parser.add_argument(
        "--json", type=Path, metavar="DIR", help="write the journal there"
    )
    add_run_options(parser)
    parser.set_defaults(run=_soak)


def _minutes(text: str) -> float:
    value = float(text)
    if not 0 < value <= _MOST_MINUTES:
        raise argparse.ArgumentTypeError(
            f"found {text}; want up to {_MOST_MINUTES:g} minutes"
        )
    return value


def _soak(options: argparse.Namespace) -> int:
    from loadtests.chaos.measuring.findings import findings  # noqa: PLC0415
    from loadtests.chaos.results import journal_file  # noqa: PLC0415 - heavy, only here
    from loadtests.chaos.running.runner import RunOptions, run  # noqa: PLC0415
    from loadtests.chaos.soak import document, drawn, soaked  # noqa: PLC0415
    from pages import page_text  # noqa: PLC0415

    loaded = drawn(options.minutes, options.seed)
    found = run(loaded, RunOptions(state=state_of(options), progress=progress(options)))
    judged = [findings(one) for one in found]
    if options.json is not None:
        journal_file.write(options.json / f"{loaded.name}.json", found, judged)
    soak = soaked(found[0])
    sys.stdout.write(page_text.render(document(soak, judged[0])))
    return max(judged[0].exit_code, EXIT_FINDING if soak.broken else 0)
