"""Writes a report: to the terminal, as a page, as JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from loadtests import json_file
from pages import page_html, page_text

if TYPE_CHECKING:
    import argparse

    from pages.blocks import Document


def publish(options: argparse.Namespace, document: Document, as_json: str) -> None:
    """Print a report, and write the files that `--html` and `--json` name.

    Raises:
        PlanError: a file cannot be written.
    """
    sys.stdout.write(page_text.render(document))
    if options.html is not None:
        json_file.write(options.html, page_html.render(document))
    if options.json is not None:
        json_file.write(options.json, f"{as_json}\n")
