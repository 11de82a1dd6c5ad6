"""Undo journals of runners that are gone, and a process that may be stopped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loadtests.chaos.site import Site
from loadtests.chaos.undoing.undo_journal import SUFFIX

if TYPE_CHECKING:
    from pathlib import Path

    from loadtests.chaos.primitives.process_refs import ProcessRef


def abandoned(folder: Path, *lines: dict[str, Any], tail: bytes = b"") -> Path:
    """The journal of a runner that is gone."""
    path = folder / f"gone{SUFFIX}"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_bytes(text.encode() + tail)
    path.chmod(0o600)
    return path


def site_of(victim: ProcessRef) -> Site:
    """A deployment whose server is that process."""
    return Site("test", "127.0.0.1:1", "127.0.0.1:2", find_server=lambda: victim)


def stopped_by(victim: ProcessRef) -> dict[str, Any]:
    """The record of a fault that has stopped it."""
    return {"processes": [victim.to_record()]}


def stop_of(victim: ProcessRef) -> dict[str, Any]:
    """The line by which a journal opens that fault."""
    return {"open": 1, "kind": "freeze_server", "record": stopped_by(victim)}
