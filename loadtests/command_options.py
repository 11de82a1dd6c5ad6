"""Options that several commands share. Imports nothing heavy: every command line is built."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.cli import Subparsers


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
        "--scenario", type=Path, metavar="FILE", help="YAML; options go over it"
    )
    parser.add_argument(
        "--protocol",
        choices=("grpc", "http", "openai-chat", "openai-completions"),
        help="default grpc; openai- for OpenAI-compatible servers",
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="default localhost:8001, HTTP 8000, OpenAI 9000",
    )
    parser.add_argument(
        "--header",
        action="append",
        metavar="NAME=VALUE",
        help="sent with every request; may be repeated",
    )
    parser.add_argument(
        "--ca-file", metavar="FILE", help='TLS, checked so; "" for the system\'s'
    )
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME[=WEIGHT]",
        help="what is loaded; repeated for a mix",
    )
    parser.add_argument(
        "--data", metavar="FILE", help="samples: npz, parquet, perf_analyzer's JSON"
    )
    parser.add_argument(
        "--prompts",
        metavar="LENGTHS",
        help="of a language model: azure-chat, azure-code, or a file of a recorded "
        "workload (CSV, JSON lines, ShareGPT's JSON)",
    )
    for side in ("input", "output"):
        parser.add_argument(
            f"--{side}-tokens",
            metavar="N[:SIGMA]",
            help=f"{'of a prompt' if side == 'input' else 'at most, of an answer'}; with "
            "SIGMA lognormal about the median N",
        )
    parser.add_argument("--batch", type=int, metavar="ROWS", help="rows a request")
    parser.add_argument(
        "--corrupt-ratio", type=float, metavar="SHARE", help="of requests, 0 to 1"
    )
    parser.add_argument("--sequence-length", type=int, metavar="N")
    parser.add_argument("--timeout", type=float, metavar="S", help="of each request")
    parser.add_argument("--in-flight", type=int, metavar="N", help="more are rejected")
    parser.add_argument("--seed", type=int, metavar="N")
    parser.add_argument(
        "--slo",
        metavar="TERMS",
        help='like "p99<20ms,errors<0.1%%", or of streams "ttft_p99<500ms,itl_p95<50ms"',
    )
    parser.add_argument(
        "--goodput",
        metavar="LIMITS",
        help='count the requests within all of them, like "ttft<500ms,itl<50ms"',
    )


def add_announcers(parser: argparse.ArgumentParser) -> None:
    """Add the option of announcements; `announce.announcers_among` reads it."""
    parser.add_argument(
        "--sidecar",
        metavar="URL",
        help="tell the sidecar's tap there: it shows the run as triton_run_info, and keeps "
        "the capacity that a search found",
    )
