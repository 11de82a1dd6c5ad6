"""The runbooks of the shipped alerts, as the status page links them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

_INSTALLED: Final = Path(__file__).with_name("runbooks")
_IN_THE_REPOSITORY: Final = Path(__file__).parents[2] / "deploy" / "runbooks"


@cache
def texts() -> dict[str, bytes]:
    """Return every runbook, in Markdown, by the name of its alert and by that of its file."""
    folder = _INSTALLED if _INSTALLED.is_dir() else _IN_THE_REPOSITORY
    found = {path.name: path.read_bytes() for path in sorted(folder.glob("*.md"))}
    return found | {name.removesuffix(".md"): text for name, text in found.items()}
