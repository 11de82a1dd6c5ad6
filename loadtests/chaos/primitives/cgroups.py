"""A control group of a fault's own, version 1 or 2, for processes that are limited.

Found by the fault's token, which is its name. In version 1 it is made below the group
that the process is in; in version 2, where a group with children has no processes of
its own, beside it. Either way all limits from above go on to hold.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from loadtests.errors import FaultFailedError, FaultRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loadtests.chaos.primitives.process_refs import ProcessRef

_MOUNTS: Final = Path("/proc/self/mounts")
_REMOVE_SECONDS: Final = 0.8
_POLL_SECONDS: Final = 0.01
_V1, _V2 = 1, 2


@dataclass(frozen=True, slots=True)
class Group:
    """A group that a fault makes for processes of one group, which is their home."""

    version: int
    home: Path
    folder: Path

    @classmethod
    def plan(cls, process: ProcessRef, controller: str, token: str) -> Self:
        """Return where it would be; touches nothing.

        Raises:
            FaultRefusedError: the controller is not to be had, or needs root.
        """
        version, home = _home(process.pid, controller)
        parent = home
        if version == _V2 and (home / "cgroup.type").exists():
            # Only the root group may have both processes and controlled children.
            parent = home.parent
        if version == _V2:
            _require_delegated(parent, controller)
        if not os.access(parent, os.W_OK) or os.geteuid() != 0:
            raise FaultRefusedError(
                f"a control group below {parent} needs root",
                "run as root, or take cpu_hog or memory_hog, which need none",
            )
        return cls(version, home, parent / token)

    @classmethod
    def from_record(cls, record: Any) -> Self:
        """Restore what `to_record` returned."""
        return cls(int(record["version"]), Path(record["home"]), Path(record["folder"]))

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON values, for a journal."""
        return {
            "version": self.version,
            "home": str(self.home),
            "folder": str(self.folder),
        }

    def make(self) -> None:
        """Make it.

        Raises:
            FaultFailedError: it cannot be made.
        """
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise FaultFailedError(f"cannot make the control group: {error}") from None

    def write(self, name: str, value: str) -> None:
        """Set one of its files.

        Raises:
            FaultFailedError: the kernel refuses.
        """
        try:
            (self.folder / name).write_text(value, "ascii")
        except OSError as error:
            message = f"cannot set {self.folder / name}: {error}"
            raise FaultFailedError(message) from None

    def read(self, name: str) -> str | None:
        """One of its files; None where it is not there."""
        try:
            return (self.folder / name).read_text("ascii").strip()
        except OSError:
            return None

    def take(self, processes: Iterable[ProcessRef]) -> None:
        """Move processes into it; those that have ended meanwhile are left out.

        Raises:
            FaultFailedError: the kernel refuses.
        """
        for process in processes:
            if process.alive:
                _move(process.pid, self.folder)

    def pids(self) -> set[int]:
        """Return the processes in it."""
        return {int(line) for line in (self.read("cgroup.procs") or "").split()}

    @property
    def there(self) -> bool:
        """True if the group exists."""
        return self.folder.exists()

    def remove(self) -> None:
        """Move everybody home and remove it. Idempotent.

        Raises:
            FaultFailedError: it is still there; how to remove it.
        """
        deadline = time.monotonic() + _REMOVE_SECONDS
        while self.folder.exists():
            for pid in self.pids():
                _move(pid, self.home)
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise FaultFailedError(
                        f"cannot remove the control group: {error}; move what "
                        f"{self.folder / 'cgroup.procs'} lists to "
                        f"{self.home / 'cgroup.procs'}, then rmdir {self.folder}"
                    ) from None
                time.sleep(_POLL_SECONDS)


def _move(pid: int, folder: Path) -> None:
    try:
        (folder / "cgroup.procs").write_text(str(pid), "ascii")
    except ProcessLookupError:
        return
    except OSError as error:
        raise FaultFailedError(
            f"cannot move process {pid} into {folder}: {error}"
        ) from None


def _home(pid: int, controller: str) -> tuple[int, Path]:
    """The version that has the controller, and the group a process is in."""
    mounts: dict[int, Path] = {}
    for line in _lines(_MOUNTS):
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup" and controller in options.split(","):
            mounts[_V1] = Path(place)
        elif kind == "cgroup2" and controller in _words(
            Path(place, "cgroup.controllers")
        ):
            mounts[_V2] = Path(place)
    groups = _lines(Path(f"/proc/{pid}/cgroup"))
    if not groups:
        raise FaultRefusedError(
            f"process {pid} has just ended", "wait until it runs again"
        )
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if _V1 in mounts and controller in controllers.split(","):
            return _V1, _within(mounts[_V1], path)
        if _V1 not in mounts and _V2 in mounts and not controllers:
            return _V2, _within(mounts[_V2], path)
    raise FaultRefusedError(
        f"this kernel has no control group with the {controller} controller mounted",
        "take cpu_hog or memory_hog, which need none",
    )


def _within(mount: Path, path: str) -> Path:
    """A group as seen from here; a container may see its own group as the root."""
    found = mount / path.lstrip("/")
    if not found.is_dir():
        raise FaultRefusedError(
            f"the control group {path} is not to be seen below {mount}",
            "run in the host's cgroup namespace, or take cpu_hog or memory_hog",
        )
    return found


def _require_delegated(parent: Path, controller: str) -> None:
    if controller not in _words(parent / "cgroup.subtree_control"):
        raise FaultRefusedError(
            f"{parent} does not hand the {controller} controller down",
            f"as root: echo +{controller} > {parent / 'cgroup.subtree_control'}",
        )


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()


def _lines(file: Path) -> list[str]:
    """Return the file's lines; none where it cannot be read."""
    try:
        return file.read_text("utf-8").splitlines()
    except OSError:
        return []
