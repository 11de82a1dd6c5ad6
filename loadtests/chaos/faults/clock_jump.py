"""The sidecar's wall clock jumps, forward or back, while it runs: by libfaketime.

Its own alone: setting the machine's clock would affect everything on it, and a time
namespace does not cover the wall clock. The library is preloaded and adds the offset in a
file to every wall clock that the process reads; monotonic clocks continue, as in a real
step. The file is read anew each time, so that a changed offset takes effect at once: 7 us
a reading.

libfaketime 0.9.10 breaks clock_nanosleep with an absolute time, so that Python's time.sleep
raises EINVAL in such a process. `tritonwatch serve` does not call it: its waits are on
events, locks and sockets.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field, field_validator

from loadtests.chaos.faults.fault import Fault, FaultFailedError, FaultRefusedError
from loadtests.chaos.faults.needs import sidecar_of
from loadtests.chaos.primitives.process_refs import ProcessRef, new_token

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

PACKAGE: Final = "faketime"
NO_OFFSET: Final = "+0\n"
_LIBRARY: Final = "libfaketimeMT.so.1"
"""The one for processes with threads."""
_FOLDERS: Final = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64")
_FILE: Final = "FAKETIME_TIMESTAMP_FILE"


class ClockJump(Fault):
    """A wrong clock: the sidecar's dates are off by `seconds`, its durations stay correct."""

    kind: Literal["clock_jump"] = "clock_jump"
    seconds: int = Field(default=3600, ge=-(10**9), le=10**9)
    """Seconds by which the clock jumps; negative ones into the past."""

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
            "before": _read(file) or NO_OFFSET,
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
        if _read(Path(record["file"])) != record["after"]:
            return [f"the clock of process {sidecar.pid} is right"]
        return []

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Restore the previous offset; do nothing where the file does not exist any more."""
        Path(record["draft"]).unlink(missing_ok=True)
        if _is_wrong(record):
            _write(record, record["before"])

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report a clock that is wrong, and a draft of its file."""
        sidecar = ProcessRef.from_record(record["sidecar"])
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
        file = timestamp_file(sidecar)
    except OSError as error:
        raise FaultRefusedError(
            f"the environment of the sidecar ({sidecar.pid}) cannot be read: "
            f"{error.strerror}",
            "run as its user or as root",
        ) from None
    if file is not None and os.access(file, os.W_OK):
        return file
    if library() is None:
        raise FaultRefusedError(
            "libfaketime is not installed", f"apt-get install {PACKAGE}"
        )
    raise FaultRefusedError(
        f"the sidecar ({sidecar.pid}) does not run under libfaketime with a timestamp file "
        "that can be written to, and the clock of a process that already runs cannot be "
        "moved",
        "let the experiment's target start one: `sidecar: {}` of an embedded target",
    )


def _is_wrong(record: dict[str, Any]) -> bool:
    return bool(_read(Path(record["file"])) == record["after"])


def _read(file: Path) -> str | None:
    """Return the file's content; None where it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        return file.read_text("ascii")
    return None


def _write(record: dict[str, Any], text: str) -> None:
    """Replace the file; a process that reads it sees the old contents or the new."""
    draft = Path(record["draft"])
    try:
        draft.write_text(text, "ascii")
        draft.replace(record["file"])
    except OSError as error:
        raise FaultFailedError(
            f"{record['file']} cannot be written: {error.strerror}; write "
            f"{text.strip()} into it"
        ) from None


def library() -> Path | None:
    """Return the library that is installed here, if any."""
    for folder in map(Path, _FOLDERS):
        for pattern in (f"faketime/{_LIBRARY}", f"*/faketime/{_LIBRARY}"):
            found = next(iter(sorted(folder.glob(pattern))), None)
            if found is not None:
                return found
    return None


def environment(file: Path) -> dict[str, str]:
    """Return the environment of a process whose clock is set by that file.

    Writes the file, with no offset. Empty where the library is not installed.
    """
    found = library()
    if found is None:
        return {}
    file.write_text(NO_OFFSET, "ascii")
    before = os.environ.get("LD_PRELOAD")
    return {
        "LD_PRELOAD": str(found) if not before else f"{found}:{before}",
        _FILE: str(file),
        "FAKETIME_NO_CACHE": "1",
        # Else timed waits on monotonic clocks, of which CPython has hundreds a second, are a
        # second late now and then.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        # Both spellings: libfaketime changed it in 0.9.10.
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def timestamp_file(process: ProcessRef) -> Path | None:
    """Return the file with a process's offset; None where it does not run under libfaketime.

    Raises:
        OSError: its environment may not be read.
    """
    folder = Path(f"/proc/{process.pid}")
    if "/libfaketime" not in (folder / "maps").read_text("utf-8", "replace"):
        return None
    name = f"{_FILE}=".encode()
    for entry in (folder / "environ").read_bytes().split(b"\0"):
        if entry.startswith(name):
            return Path(os.fsdecode(entry.removeprefix(name)))
    return None
