"""The command `tritonwatch load`. Exit 0 ok, 1 a finding, 2 wrong usage, 3 no valid numbers."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse

    from exporter.cli import Subparsers

_PARTS: Final = (
    "loadtests.run_command",
    "loadtests.list_command",
    "loadtests.capacity.command",
    "loadtests.efficiency.command",
    "loadtests.report.command",
)
"""What has an `add(commands)`; the heavy imports are made inside the commands."""


def add(commands: Subparsers) -> None:
    """Add `load` and its own commands."""
    parser = commands.add_parser(
        "load",
        help="load profiles, runs, capacity search, reports",
        description="Load a Triton server, or any KServe-v2 server, and say how far the "
        "numbers can be trusted.",
    )
    parts = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in _PARTS:
        importlib.import_module(name).add(parts)


def add_target(parser: argparse.ArgumentParser) -> None:
    """The options that say where to and what; `run_command.scenario_of` reads them."""
    parser.add_argument(
        "--scenario", type=Path, metavar="FILE", help="YAML; options go over it"
    )
    parser.add_argument("--protocol", choices=("grpc", "http"), help="default grpc")
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="default localhost:8001, HTTP 8000"
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
    parser.add_argument("--batch", type=int, metavar="ROWS", help="rows a request")
    parser.add_argument(
        "--corrupt-ratio", type=float, metavar="SHARE", help="of requests, 0 to 1"
    )
    parser.add_argument(
        "--shared-memory",
        action="store_true",
        default=None,
        help="inputs in system shared memory, on the same host",
    )
    parser.add_argument("--sequence-length", type=int, metavar="N")
    parser.add_argument("--timeout", type=float, metavar="S", help="of each request")
    parser.add_argument("--in-flight", type=int, metavar="N", help="more are rejected")
    parser.add_argument("--seed", type=int, metavar="N")
    parser.add_argument("--slo", metavar="TERMS", help='like "p99<20ms,errors<0.1%%"')


def add_announcers(parser: argparse.ArgumentParser) -> None:
    """The options that say who is told of a run; `announce.announcers_of` takes them."""
    parser.add_argument(
        "--sidecar",
        metavar="URL",
        help="tell the sidecar's tap there: it shows the run as triton_run_info, and keeps "
        "the capacity that a search found",
    )
    parser.add_argument(
        "--grafana", metavar="URL", help="annotate the run there when it is over"
    )
    parser.add_argument(
        "--grafana-token-file", type=Path, metavar="FILE", help="of a service account"
    )
    parser.add_argument(
        "--otlp", metavar="URL", help="send a span of the run there, OTLP over HTTP"
    )
