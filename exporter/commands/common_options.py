"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_config(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the option that names the configuration file."""
    parser.add_argument(
        "--config",
        "--config.file",
        dest="config",
        type=Path,
        metavar="FILE",
        required=required,
        help="configuration file (YAML)",
    )
