"""A JSON file of learnt state: written atomically, and validated when read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import structlog

from exporter.errors import UnusableFileError
from exporter.system import whole_file

if TYPE_CHECKING:
    from pathlib import Path

log = structlog.get_logger()

MAX_BYTES: Final = 64 << 20


def read(path: Path) -> dict[str, Any] | None:
    """Return the content, or None without a usable file.

    An unusable file is renamed, so that it can be inspected, and logged once.

    Raises:
        OSError: it cannot be read now; its content may still be valid.
    """
    try:
        found = json.loads(whole_file.read(path, MAX_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (
        IsADirectoryError,
        UnusableFileError,
        ValueError,
        RecursionError,
    ) as error:
        set_aside(path, str(error))
        return None
    if not isinstance(found, dict):
        set_aside(path, "want a JSON object")
        return None
    return found


def write(path: Path, content: dict[str, Any]) -> str:
    """Replace the file atomically; return the error, or "". The old one stays then."""
    try:
        whole_file.write(path, json.dumps(content).encode())
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return ""


def set_aside(path: Path, reason: str) -> None:
    """Rename a file that cannot be used."""
    kept_as = problem = ""
    try:
        kept_as = str(whole_file.set_aside(path))
    except OSError as error:
        problem = error.strerror or str(error)
    log.warning(
        "state_set_aside",
        file=str(path),
        reason=reason,
        kept_as=kept_as,
        problem=problem,
    )
