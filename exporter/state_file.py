"""A JSON file that keeps what was learnt: written whole or not at all, read with doubt."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import structlog

if TYPE_CHECKING:
    from pathlib import Path

log = structlog.get_logger()

MAX_BYTES: Final = 64 << 20
ASIDE: Final = ".set-aside"
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def read(path: Path) -> dict[str, Any] | None:
    """What the file holds; None where there is none, or none that can be used.

    One that cannot be used is renamed, so that it can be looked at, and told once.

    Raises:
        OSError: it cannot be read now, which says nothing against what it holds.
    """
    try:
        # Opening a pipe would wait for somebody to write.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
            raw = file.read(MAX_BYTES + 1)
        found = json.loads(raw) if len(raw) <= MAX_BYTES else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (IsADirectoryError, ValueError, RecursionError) as error:
        set_aside(path, str(error))
        return None
    if not isinstance(found, dict):
        set_aside(path, f"want a JSON object of at most {MAX_BYTES} bytes")
        return None
    return found


def write(path: Path, content: dict[str, Any]) -> str:
    """Replace the file at once; what went wrong, or nothing. The old one stays then."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Always the same name, so that processes killed here leave no more than one.
        draft = path.with_name(f".{path.name}.new")
        try:
            descriptor = os.open(draft, _NEW, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return ""


def set_aside(path: Path, reason: str) -> None:
    """Rename what cannot be used."""
    aside = path.with_name(path.name + ASIDE)
    problem = ""
    try:
        path.replace(aside)
    except OSError as error:
        problem = error.strerror or str(error)
    log.warning(
        "state_set_aside",
        file=str(path),
        reason=reason,
        kept_as="" if problem else str(aside),
        problem=problem,
    )
