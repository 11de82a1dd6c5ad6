"""Options that several commands share. Imports nothing heavy: every command line is built."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.commands.common_options import Subparsers

JSON_REPORT: Final = ("--json", Path, "FILE", "write the report as JSON")
HTML_REPORT: Final = ("--html", Path, "FILE", "write the report as a page")


def add_command(
    commands: Subparsers, name: str, text: str, run: str, description: str = ""
) -> argparse.ArgumentParser:
    """Add a command; `run` is the function, as "module:name", imported when it is run."""
    whole = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(
        name,
        help=text,
        description=description or None,
        formatter_class=whole if "\n" in description else argparse.HelpFormatter,
    )

    def start(options: argparse.Namespace) -> int:
        module, _, function = run.partition(":")
        return int(getattr(importlib.import_module(module), function)(options))

    parser.set_defaults(run=start)
    return parser


def add_value(
    parser: argparse.ArgumentParser,
    name: str,
    kind: Callable[[str], Any],
    placeholder: str,
    text: str,
) -> None:
    """Add an option with a value."""
    parser.add_argument(name, type=kind, metavar=placeholder, help=text)


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the options of target and requests; `scenario_options.scenario_of` reads them."""
    _add_server(parser)
    _add_requests(parser)


def _add_server(parser: argparse.ArgumentParser) -> None:
    add_value(
        parser, "--scenario", Path, "FILE", "scenario file (YAML); options override it"
    )
    parser.add_argument(
        "--protocol",
        choices=("grpc", "http", "openai-chat", "openai-completions"),
        help="protocol of the server (default grpc)",
    )
    add_value(
        parser,
        "--address",
        str,
        "HOST:PORT",
        "address of the server (default localhost, port 8001; 8000 with http, 9000 with "
        "openai-*)",
    )
    parser.add_argument(
        "--header",
        action="append",
        metavar="NAME=VALUE",
        help="header or metadata of every request; may be repeated",
    )
    add_value(
        parser,
        "--ca-file",
        str,
        "FILE",
        'use TLS and verify it with these authorities; "" for those of the system',
    )


def _add_requests(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME[=WEIGHT]",
        help="model to send to; repeat it for a mix, with weights",
    )
    add_value(
        parser,
        "--data",
        str,
        "FILE",
        "inputs to send: npz, parquet, or the JSON of perf_analyzer",
    )
    add_value(
        parser,
        "--prompts",
        str,
        "LENGTHS",
        "lengths of a language model's prompts: azure-chat, azure-code, or a recorded "
        "workload (CSV, JSON lines, the JSON of ShareGPT)",
    )
    lognormal = ", in tokens; with SIGMA, lognormal with the median N"
    add_value(
        parser, "--input-tokens", str, "N[:SIGMA]", f"length of a prompt{lognormal}"
    )
    add_value(parser, "--output-tokens", str, "N[:SIGMA]", f"longest answer{lognormal}")
    add_value(parser, "--batch", int, "ROWS", "rows in each request")
    parser.add_argument(
        "--no-stream",
        dest="stream",
        action="store_const",
        const=False,
        help="ask decoupled models for whole answers, by /generate (with --protocol http)",
    )
    add_value(
        parser,
        "--sequence-length",
        int,
        "N",
        "requests in each sequence, for stateful models",
    )
    add_value(parser, "--timeout", float, "S", "deadline of each request (default 10)")
    add_value(
        parser,
        "--in-flight",
        int,
        "N",
        "maximum number of requests in flight (default 4096); more are not sent and "
        "count as failed",
    )
    add_value(parser, "--seed", int, "N", "seed of arrivals and inputs (default 1)")


def add_objective(parser: argparse.ArgumentParser) -> None:
    """Add the objective, which measurements of energy do not judge."""
    add_value(
        parser,
        "--slo",
        str,
        "TERMS",
        'objective, like "p99<20ms,errors<0.1%%"; for streamed answers like '
        '"ttft_p99<500ms,itl_p95<50ms"',
    )


def add_goodput(parser: argparse.ArgumentParser) -> None:
    """Add the limits of goodput, which only single runs report."""
    add_value(
        parser,
        "--goodput",
        str,
        "LIMITS",
        "also report the share of requests within these limits, like "
        '"ttft<500ms,itl<50ms"',
    )


def add_announcers(parser: argparse.ArgumentParser) -> None:
    """Add the option of announcements; `announce.sidecars_of` reads it."""
    add_value(
        parser,
        "--sidecar",
        str,
        "URL",
        "report the run to a sidecar at the address of its tap, like "
        "http://localhost:8004",
    )
