"""The options of `tritonwatch coldstart`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

from exporter.commands.common_options import add_config, progress_of

if TYPE_CHECKING:
    from exporter.commands.common_options import Subparsers


def add(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "coldstart",
        help="measure how long a model takes to load and answer",
        description="Unload and load a model repeatedly through Triton's model control. "
        "Time each load and the first answer after it. The model cannot be used while it "
        "is unloaded; at the end it is as it was before. Needs "
        "--model-control-mode=explicit.",
    )
    add_config(parser)
    parser.add_argument("--model", required=True, help="the model to load")
    parser.add_argument(
        "--repeat",
        type=_count,
        default=10,
        metavar="N",
        help="number of loads (default 10)",
    )
    parser.add_argument(
        "--pid",
        type=_count,
        help="process of a tritonserver on this host, to measure its memory",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="longest wait for one load, unload or answer (default 60)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=_run)


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"found {text!r}; want a positive integer")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    from exporter.commands.cold_start_measure import Server, measure  # noqa: PLC0415
    from exporter.commands.cold_start_report import Report  # noqa: PLC0415
    from exporter.config import connect  # noqa: PLC0415 - heavy, only here
    from exporter.config.configuration import load  # noqa: PLC0415
    from exporter.errors import ConfigError  # noqa: PLC0415

    target = connect.triton(load(options.config), "coldstart")
    http = connect.http_client(target)
    if http is None:
        problem = "target.http: found null; loading goes over HTTP"
        raise ConfigError(str(options.config), [problem])
    grpc, metrics = connect.grpc_client(target), connect.metrics_client(target)
    with contextlib.ExitStack() as stack:
        for client in (grpc, http, metrics):
            if client is not None:
                stack.callback(client.close)
        server = Server(
            grpc, http, metrics, pid=options.pid, timeout_seconds=options.timeout
        )
        info = grpc.server_info(timeout_seconds=options.timeout)
        found = measure(server, options.model, options.repeat, progress_of("coldstart"))
    report = Report(options.model, info.version, found)
    sys.stdout.write(f"{report.to_json()}\n" if options.json else report.to_text())
    return 0
