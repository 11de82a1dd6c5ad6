"""The command `tritonwatch chaos soak`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtests.chaos.commands.undo_command import add_run_options, progress, state_of

if TYPE_CHECKING:
    from exporter.cli import Subparsers
    from loadtests.chaos.measuring.findings import Findings
    from loadtests.chaos.soak import Soak
    from pages.blocks import Document

EXIT_FINDING: Final = 1
_MOST_MINUTES: Final = 240.0
_DESCRIPTION: Final = """\
Break one thing after another, drawn from a seed, on a Triton of the run's own with a
sidecar beside it; see that users are served again after each, and that the sidecar
neither falls over nor grows. Exit 0: so it was; 1: a finding."""


def add(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "soak",
        help="random faults for a while, and whether anything grows",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=_minutes, default=20.0, metavar="M")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the draw")
    parser.add_argument(
        "--json", type=Path, metavar="DIR", help="write the journal there"
    )
    add_run_options(parser)
    parser.set_defaults(run=_run)


def _minutes(text: str) -> float:
    value = float(text)
    if not 0 < value <= _MOST_MINUTES:
        raise argparse.ArgumentTypeError(
            f"found {text}; want up to {_MOST_MINUTES:g} minutes"
        )
    return value


def _run(options: argparse.Namespace) -> int:
    from loadtests.chaos.measuring.findings import findings  # noqa: PLC0415
    from loadtests.chaos.results import journal_file  # noqa: PLC0415 - heavy, only here
    from loadtests.chaos.running.runner import RunOptions, run  # noqa: PLC0415
    from loadtests.chaos.soak import drawn, soaked  # noqa: PLC0415
    from pages import page_text  # noqa: PLC0415

    loaded = drawn(options.minutes, options.seed)
    found = run(loaded, RunOptions(state=state_of(options), progress=progress(options)))
    judged = [findings(one) for one in found]
    if options.json is not None:
        journal_file.write(options.json / f"{loaded.name}.json", found, judged)
    soak = soaked(found[0])
    sys.stdout.write(page_text.render(document(soak, judged[0])))
    return max(judged[0].exit_code, EXIT_FINDING if soak.broken else 0)


_KEPT: Final = {True: "yes", False: "no", None: "unknown"}


def document(soak: Soak, judged: Findings) -> Document:
    """Return the report of a soak."""
    from loadtests.chaos.soak import GROWTH_BYTES_PER_HOUR  # noqa: PLC0415 - heavy
    from pages.blocks import Document, Facts, Items  # noqa: PLC0415

    back = [fault.recovery.state for fault in judged.faults if fault.recovery]
    served = sum(state in {"recovered", "unaffected"} for state in back)
    sidecar = {
        "seconds after the warm-up": f"{soak.watched_seconds:.0f}",
        "resident memory": f"{_mega(soak.resident_bytes_first)} to "
        f"{_mega(soak.resident_bytes_last)}",
        "growth an hour": f"{_mega(soak.growth_bytes_per_hour)} "
        f"[{_mega(soak.growth_low)}, {_mega(soak.growth_high)}], "
        f"{_mega(soak.growth_late)} in the second half",
        f"less than {_mega(GROWTH_BYTES_PER_HOUR)} an hour": _KEPT[soak.kept],
        "descriptors": _signed(soak.open_fds_growth),
        "threads": _signed(soak.threads_growth),
    }
    title = (
        f"soak: {judged.verdict.upper()}; {soak.faults} faults, "
        f"served again after {served} of {len(back)}"
    )
    return Document(title, (Facts(sidecar), Items((*judged.reasons, *soak.broken))))


def _mega(value: float | None) -> str:
    return "unknown" if value is None else f"{value / 1e6:.2f} MB"


def _signed(value: int | None) -> str:
    return "unknown" if value is None else f"{value:+d}"
