"""The options of `tritonwatch serve`."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from exporter.commands.common_options import add_config
from exporter.network.addresses import without_brackets
from exporter.system import standard_error

if TYPE_CHECKING:
    from exporter.commands.common_options import Subparsers

_MOST_PORT: Final = 65_535


def add(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "serve",
        help="run the sidecar",
        description="Run the sidecar. Without a configuration file it watches all ready "
        "models of localhost:8001 and :8000, and listens on port 8003. SIGHUP reloads the "
        "file. Options override the file.",
    )
    add_config(parser)
    parser.add_argument(
        "--web.listen-address",
        dest="addresses",
        type=_address,
        action="append",
        metavar="[HOST]:PORT",
        help="address to listen on; may be repeated",
    )
    parser.add_argument(
        "--web.telemetry-path",
        dest="metrics_path",
        type=_path,
        default="/metrics",
        metavar="PATH",
        help="path of the metrics (default /metrics)",
    )
    parser.add_argument(
        "--log.level",
        dest="log_level",
        choices=("debug", "info", "warning", "error"),
        help="lowest level to log",
    )
    parser.add_argument(
        "--log.format",
        dest="log_format",
        choices=("logfmt", "json"),
        help="format of the log",
    )
    parser.add_argument(
        "--web.enable-lifecycle",
        dest="lifecycle",
        action="store_true",
        help="allow POST /-/reload",
    )
    parser.add_argument(
        "--web.config.file",
        dest="web_config",
        type=Path,
        metavar="FILE",
        help="TLS and basic auth, in the format of exporter-toolkit",
    )

    def run(options: argparse.Namespace) -> int:
        standard_error.occupy_descriptor()
        # Until the sidecar handles them itself: the imports below take most of its
        # start, the file is read after them, and the first process of a container
        # would not hear of a SIGTERM at all.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        from exporter.commands.serving import Overrides, serve  # noqa: PLC0415 - heavy, only here

        serve(
            options.config,
            Overrides(
                options.addresses,
                options.metrics_path,
                options.log_level,
                options.log_format,
            ),
            lifecycle=options.lifecycle,
            web_config=options.web_config,
        )
        return 0

    parser.set_defaults(run=run)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > _MOST_PORT:
        raise argparse.ArgumentTypeError(f"found {text!r}; want [HOST]:PORT")
    try:
        return without_brackets(host), int(port)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _path(text: str) -> str:
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError(
            f"found {text!r}; want a path that begins with /"
        )
    return text
