"""The command `tritonwatch audit`: inspect, conclude, write."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Literal

from exporter.commands.audit.audit_document import WIDTH, document
from exporter.commands.audit.audit_report import Report, report_of
from exporter.commands.audit.gather import gather
from exporter.config import configuration, connect
from exporter.errors import ConfigError
from exporter.system import whole_file
from pages import page_html, page_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Format = Literal["text", "json", "html"]
LEAST_SECONDS: Final = 1.0
MOST_SECONDS: Final = 600.0


def audit(
    config: Path | None, duration_seconds: float, report_step: Callable[[str], None]
) -> Report:
    """Inspect the configured server once; without one that of localhost.

    Raises:
        ConfigError: the file or the duration is wrong, or a TLS file cannot be read.
    """
    if not LEAST_SECONDS <= duration_seconds <= MOST_SECONDS:
        wanted = f"want {LEAST_SECONDS:g} to {MOST_SECONDS:g} s"
        raise ConfigError("--duration", [f"found {duration_seconds:g}; {wanted}"])
    loaded = configuration.load(config)
    target = connect.triton(loaded, "audit")
    started_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    began = time.monotonic()
    evidence = gather(loaded, duration_seconds, report_step)
    return report_of(
        evidence,
        target,
        started_at=started_at,
        seconds=time.monotonic() - began,
        tritonwatch_version=version("tritonwatch"),
    )


def rendered(report: Report, form: Format) -> str:
    """The report in one of the formats."""
    match form:
        case "json":
            return report.model_dump_json(indent=2) + "\n"
        case "html":
            return page_html.render(document(report))
        case "text":
            return page_text.render(document(report), WIDTH)


def check_writable(path: Path) -> None:
    """Check that a report can be written, before the audit and not after it.

    Raises:
        ConfigError: a report could not be written there.
    """
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        wanted = "want a file in a folder that can be written to"
        raise ConfigError("--output", [f"found {str(path)!r}; {wanted}"])


def write(path: Path, content: str) -> None:
    """Write the whole report into the file, or leave the file unchanged.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        whole_file.write(path, content.encode(), 0o644)
    except OSError as error:
        reason = error.strerror or "unknown"
        raise ConfigError("--output", [f"found {str(path)!r}: {reason}"]) from None
