"""The options of `tritonwatch golden`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from exporter.commands.common_options import add_config, progress_of

if TYPE_CHECKING:
    import argparse

    from exporter.commands.common_options import Subparsers


def add(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "golden",
        help="record a model's answers to golden data, or score them",
        description="Send a whole golden data set to a served model. `record` sends it "
        "twice and writes the data with the answers, which golden probes then expect. "
        "`score` prints the scores of the answers, and exits with 1 if they differ from "
        "recorded ones.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, text in (
        ("record", "send golden data (npz, CSV, Parquet, JSON), write the answers"),
        ("score", "send golden data, print the scores of the answers"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("--model", required=True, help="name of the model")
        action.add_argument(
            "--version", default="", help="its version (default: the latest)"
        )
        action.add_argument(
            "--data", type=Path, required=True, metavar="FILE", help="the golden data"
        )
        action.add_argument("--label", metavar="COLUMN", help="column with the labels")
        action.add_argument(
            "--scored",
            default="",
            metavar="OUTPUT",
            help="output that the labels belong to, if there are several",
        )
        action.add_argument(
            "--grpc",
            metavar="HOST:PORT",
            help="Triton's gRPC address (default localhost:8001)",
        )
        add_config(action)
        if name == "record":
            action.add_argument(
                "--output",
                type=Path,
                required=True,
                metavar="FILE",
                help="file to write",
            )
        action.set_defaults(run=_run_golden)


def _run_golden(options: argparse.Namespace) -> int:
    from exporter.commands import golden_command  # noqa: PLC0415 - heavy, only here

    data = golden_command.settings_of(
        options.data, label=options.label, output=options.scored
    )
    wanted = golden_command.Wanted(
        options.config, options.grpc, options.model, options.version, data
    )
    progress = progress_of("golden")
    recorded = hasattr(options, "output")
    if recorded:
        answers = golden_command.record(wanted, options.output, progress)
    else:
        answers = golden_command.ask(wanted, progress)
    width = max(map(len, answers.scores), default=0)
    for metric, value in answers.scores.items():
        print(f"{metric:<{width}}  {value:.6g}")
    print(f"sha256 {answers.golden.sha256}  {answers.golden.rows} rows  {options.data}")
    if recorded:
        print(
            f"recorded {answers.spec.name} version {answers.spec.version} in {options.output}"
        )
    match, rows = answers.scores.get("match"), answers.golden.rows
    if match is None or match == 1.0:
        if match is not None:
            print(f"All {rows} answers match the recorded ones.")
        return 0
    wrong = round((1.0 - match) * rows)
    print(f"{wrong} of {rows} answers do not match the recorded ones.")
    return 1
