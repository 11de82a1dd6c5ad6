"""libfaketime: a wall clock of its own for a process that is started with it.

The library is preloaded and adds the offset in a file to every wall clock that the process
reads; monotonic clocks stay right. The file is read anew each time, so that a changed
offset takes effect at once: 7 us a reading.

libfaketime 0.9.10 breaks clock_nanosleep with an absolute time, so that Python's time.sleep
raises EINVAL in such a process. `tritonwatch serve` does not call it: its waits are on
events, locks and sockets.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from loadtests.chaos.primitives.processes import ProcessRef

PACKAGE: Final = "faketime"
NO_OFFSET: Final = "+0\n"
_LIBRARY: Final = "libfaketimeMT.so.1"
"""The one for processes with threads."""
_FOLDERS: Final = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64")
_FILE: Final = "FAKETIME_TIMESTAMP_FILE"


def library() -> Path | None:
    """Return the library that is installed here, if any."""
    for folder in map(Path, _FOLDERS):
        for pattern in (f"faketime/{_LIBRARY}", f"*/faketime/{_LIBRARY}"):
            found = next(iter(sorted(folder.glob(pattern))), None)
            if found is not None:
                return found
    return None


def environment(file: Path) -> dict[str, str]:
    """Return what a process needs in its environment to have its clock in that file.

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


def write(file: Path, text: str, draft: Path) -> None:
    """Replace the file's contents; a process that reads it sees the old or the new.

    Raises:
        OSError: the folder cannot be written to.
    """
    draft.write_text(text, "ascii")
    draft.replace(file)


def read(file: Path) -> str | None:
    """Return the file's contents; None where it is gone."""
    with contextlib.suppress(FileNotFoundError):
        return file.read_text("ascii")
    return None
