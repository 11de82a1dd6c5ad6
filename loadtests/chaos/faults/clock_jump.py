"""The sidecar's wall clock jumps, forward or back, while it runs.

Its own alone: setting the machine's clock would affect everything on it, and a time
namespace does not cover the wall clock. The monotonic clock continues, as in a real step.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator

from loadtests.chaos.faults.base import Fault, FaultFailedError, FaultRefusedError
from loadtests.chaos.faults.needs import sidecar_of
from loadtests.chaos.primitives import faketime
from loadtests.chaos.primitives.processes import ProcessRef, new_token

if TYPE_CHECKING:
    from loadtests.chaos.site import Site


class ClockJump(Fault):
    """Every date that the sidecar reads is wrong by `seconds`; durations stay right."""

    strength: ClassVar[str | None] = "seconds"

    kind: Literal["clock_jump"] = "clock_jump"
    seconds: int = Field(default=3600, ge=-(10**9), le=10**9)
    """By how much; below zero into the past."""

    @field_validator("seconds")
    @classmethod
    def _moves(cls, seconds: int) -> int:
        if seconds == 0:
            raise ValueError(
                "found 0, which is no jump; want seconds below or above it"
            )
        return seconds

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the process, its file, and the file's contents before and after.

        The sidecar has to run under libfaketime.
        """
        sidecar = sidecar_of(site)
        file = _clock_of(sidecar)
        return {
            "sidecar": sidecar.to_record(),
            "file": str(file),
            "draft": str(file.with_name(f".{file.name}.{new_token()}")),
            "before": faketime.read(file) or faketime.NO_OFFSET,
            "after": f"{self.seconds:+d}\n",
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Write the offset."""
        sidecar = ProcessRef.from_record(record["sidecar"])
        if not sidecar.alive:
            raise FaultFailedError(f"sidecar {sidecar.pid} has ended")
        _write(record, record["after"])

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report a sidecar that has ended, or whose clock is right."""
        sidecar = ProcessRef.from_record(record["sidecar"])
        if not sidecar.alive:
            return [f"sidecar {sidecar.pid} has ended"]
        if faketime.read(Path(record["file"])) != record["after"]:
            return [f"the clock of process {sidecar.pid} is right"]
        return []

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Write the offset that was there before; nothing to do where the file is gone."""
        if "file" not in record:
            # Of version 0.1.0, which stopped the process while it wrote to its memory.
            ProcessRef.from_record(record["sidecar"]).send(signal.SIGCONT)
            return
        Path(record["draft"]).unlink(missing_ok=True)
        if _is_wrong(record):
            _write(record, record["before"])

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report a clock that is wrong, and a draft of its file."""
        sidecar = ProcessRef.from_record(record["sidecar"])
        if "file" not in record:
            if not sidecar.alive:
                return []
            problem = (
                f"version 0.1.0 moved the clock of process {sidecar.pid} in its memory, "
                "which this version cannot undo; restart that process"
            )
            return [problem]
        found = []
        if _is_wrong(record):
            found.append(
                f"the clock of process {sidecar.pid} is wrong; write "
                f"{record['before'].strip()} into {record['file']}"
            )
        if Path(record["draft"]).exists():
            found.append(f"{record['draft']} is there; remove it")
        return found


def _clock_of(sidecar: ProcessRef) -> Path:
    try:
        file = faketime.timestamp_file(sidecar)
    except OSError as error:
        raise FaultRefusedError(
            f"the environment of the sidecar ({sidecar.pid}) cannot be read: "
            f"{error.strerror}",
            "run as its user or as root",
        ) from None
    if file is not None and os.access(file, os.W_OK):
        return file
    if faketime.library() is None:
        raise FaultRefusedError(
            "libfaketime is not installed", f"apt-get install {faketime.PACKAGE}"
        )
    raise FaultRefusedError(
        f"the sidecar ({sidecar.pid}) does not run under libfaketime with a timestamp file "
        "that can be written to, and the clock of a process that already runs cannot be "
        "moved",
        "let the experiment's target start one: `sidecar: {}` of an embedded target",
    )


def _is_wrong(record: dict[str, Any]) -> bool:
    return bool(faketime.read(Path(record["file"])) == record["after"])


def _write(record: dict[str, Any], text: str) -> None:
    try:
        faketime.write(Path(record["file"]), text, Path(record["draft"]))
    except OSError as error:
        raise FaultFailedError(
            f"{record['file']} cannot be written: {error.strerror}; write "
            f"{text.strip()} into it"
        ) from None
