"""Undo journals of runners that are gone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loadtests.chaos.undoing.undo_journal import SUFFIX

if TYPE_CHECKING:
    from pathlib import Path


def abandoned(folder: Path, *lines: dict[str, Any], tail: bytes = b"") -> Path:
    """The journal of a runner that is gone."""
    path = folder / f"gone{SUFFIX}"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_bytes(text.encode() + tail)
    path.chmod(0o600)
    return path
