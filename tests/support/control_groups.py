"""A control group of a test's own, with a limit of memory, in either version."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

_ROOT: Final = Path("/sys/fs/cgroup")
_ENTER: Final = 'echo $$ > "$0" && exec "$@"'


class NoGroupError(Exception):
    """This machine lets nobody make a group that limits memory."""


class ControlGroup:
    """A folder below that of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def within(self) -> tuple[str, ...]:
        """The beginning of a command line of which the rest runs in the group."""
        return ("sh", "-c", _ENTER, str(self.folder / "cgroup.procs"))

    @property
    def peak_bytes(self) -> int:
        """The most that was ever charged to it, page cache included."""
        return int(self._first("memory.peak", "memory.max_usage_in_bytes"))

    @property
    def kills(self) -> int:
        """Processes that the kernel killed for their memory."""
        text = self._first("memory.events", "memory.oom_control")
        found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
        return int(found[1]) if found else 0

    def _first(self, *names: str) -> str:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                return (self.folder / name).read_text("ascii")
        return "0"


@contextlib.contextmanager
def limited(most_bytes: int) -> Generator[ControlGroup]:
    """A group with that limit; what runs in it has to end before the block does.

    Raises:
        NoGroupError: with the reason.
    """
    parent, limit = _parent()
    folder = parent / f"tritonwatch-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        raise NoGroupError(f"no control group can be made: {error}") from None
    try:
        if not (folder / limit).exists():
            raise NoGroupError(f"the groups below {parent} have no {limit}")
        (folder / limit).write_text(str(most_bytes), "ascii")
        yield ControlGroup(folder)
    finally:
        _removed(folder)


def _parent() -> tuple[Path, str]:
    """The group of this process, and the name of the limit in it."""
    lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _ROOT / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
    path = next((p for line in lines for p in [line.split(":", 2)[2]]), "/")
    return _ROOT / path.lstrip("/"), "memory.max"


def _removed(folder: Path) -> None:
    """Remove the group; the kernel takes a moment to see that nobody is in it."""
    for _ in range(100):
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return
    folder.rmdir()
