"""Options that several commands share. Imports nothing heavy: every command line is built."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.commands.common_options import Subparsers


def add_command(
    commands: Subparsers, name: str, told: str, run: str, description: str = ""
) -> argparse.ArgumentParser:
    """Add a command; `run` is the function, as "module:name", imported when it is run."""
    whole = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(
        name,
        help=told,
        description=description or None,
        formatter_class=whole if "\n" in description else argparse.HelpFormatter,
    )

    def start(options: argparse.Namespace) -> int:
        module, _, function = run.partition(":")
        return int(getattr(importlib.import_module(module), function)(options))

    parser.set_defaults(run=start)
    return parser


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the options of target and requests; `scenario_options.scenario_of` reads them."""
    parser.add_argument(
        "--scenario",
        type=Path,
        metavar="FILE",
        help="scenario file (YAML); options override it",
    )
    parser.add_argument(
        "--protocol",
        choices=("grpc", "http", "openai-chat", "openai-completions"),
        help="protocol of the server (default grpc)",
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="address of the server (default localhost, port 8001; 8000 with http, 9000 with "
        "openai-*)",
    )
    parser.add_argument(
        "--header",
        action="append",
        metavar="NAME=VALUE",
        help="header or metadata of every request; may be repeated",
    )
    parser.add_argument(
        "--ca-file",
        metavar="FILE",
        help='use TLS and verify it with these authorities; "" for those of the system',
    )
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME[=WEIGHT]",
        help="model to send to; repeat it for a mix, with weights",
    )
    parser.add_argument(
        "--data",
        metavar="FILE",
        help="inputs to send: npz, parquet, or the JSON of perf_analyzer",
    )
    parser.add_argument(
        "--prompts",
        metavar="LENGTHS",
        help="lengths of a language model's prompts: azure-chat, azure-code, or a recorded "
        "workload (CSV, JSON lines, the JSON of ShareGPT)",
    )
    for side in ("input", "output"):
        parser.add_argument(
            f"--{side}-tokens",
            metavar="N[:SIGMA]",
            help=f"{'length of a prompt' if side == 'input' else 'longest answer'}, in "
            "tokens; with SIGMA, lognormal with the median N",
        )
    parser.add_argument(
        "--batch", type=int, metavar="ROWS", help="rows in each request"
    )
    parser.add_argument(
        "--corrupt-ratio",
        type=float,
        metavar="SHARE",
        help="share of requests with corrupt inputs, 0 to 1",
    )
    parser.add_argument(
        "--sequence-length",
        type=int,
        metavar="N",
        help="requests in each sequence, for stateful models",
    )
    parser.add_argument(
        "--timeout", type=float, metavar="S", help="deadline of each request"
    )
    parser.add_argument(
        "--in-flight",
        type=int,
        metavar="N",
        help="most requests at once; further ones are shed and counted as failed",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="seed of arrivals and inputs"
    )
    parser.add_argument(
        "--slo",
        metavar="TERMS",
        help='objective, like "p99<20ms,errors<0.1%%"; for streamed answers like '
        '"ttft_p99<500ms,itl_p95<50ms"',
    )
    parser.add_argument(
        "--goodput",
        metavar="LIMITS",
        help="also report the share of requests within these limits, like "
        '"ttft<500ms,itl<50ms"',
    )


def add_announcers(parser: argparse.ArgumentParser) -> None:
    """Add the option of announcements; `announce.announcers_among` reads it."""
    parser.add_argument(
        "--sidecar",
        metavar="URL",
        help="announce the run to the sidecar whose tap has this URL: it exposes "
        "triton_run_info, and the capacity that a search finds",
    )
