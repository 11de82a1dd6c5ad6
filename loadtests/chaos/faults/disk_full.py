"""The volume of the trace files is full. Never the machine's own disk.

Where the folder is a small volume of its own, a file fills it. Where it is not, a tiny
volume in memory is mounted over it (root): what was there is hidden, not touched.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from loadtests.chaos.faults.fault import Fault
from loadtests.chaos.primitives import programs
from loadtests.chaos.primitives.process_refs import new_token
from loadtests.errors import FaultFailedError, FaultRefusedError

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

_SMALL_BYTES: Final = 1 << 30
"""The largest volume that is filled."""
_MOUNTED_BYTES: Final = 64 << 10
_CHUNK: Final = bytes(1 << 20)
_MOST_MOUNTS: Final = 4


class DiskFull(Fault):
    """A full disk: writing traces fails, requests must not."""

    kind: Literal["disk_full"] = "disk_full"
    mechanism: Literal["auto", "fill", "mount"] = Field(default="auto")
    """`fill`: a file, where the folder is a volume of its own of at most 1 GiB. `mount`:
    a volume over it (root). `auto`: the first of them that can be done here."""

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the folder, the method, and the token that names the files made there."""
        folder, mechanism = self._chosen(site)
        return {
            "token": new_token(),
            "folder": str(folder),
            "mechanism": mechanism,
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Mount, where that is the way, and fill."""
        folder, token = Path(record["folder"]), record["token"]
        if record["mechanism"] == "mount":
            status = folder.stat()
            options = (
                f"size={_MOUNTED_BYTES},mode={status.st_mode & 0o7777:o},"
                f"uid={status.st_uid},gid={status.st_gid}"
            )
            programs.run(
                token, ["mount", "-t", "tmpfs", "-o", options, token, str(folder)]
            )
        _fill(_ballast(record))

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report free space that is left, and a volume that is not mounted."""
        if record["mechanism"] == "mount" and not _mounted(record["token"]):
            return [f"no volume is mounted over {record['folder']}"]
        free = _free(Path(record["folder"]))
        return [f"{record['folder']} has {free} bytes free"] if free else []

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Unmount the volume, remove the file."""
        token = record["token"]
        if record["mechanism"] == "fill":
            _ballast(record).unlink(missing_ok=True)
            return
        programs.stop(token)
        for _ in range(_MOST_MOUNTS):
            if not _mounted(token):
                return
            # Open files there stay usable; the name is free at once.
            programs.attempt(token, ["umount", "--lazy", record["folder"]])
        if _mounted(token):
            raise FaultFailedError(
                f"the volume {token} cannot be unmounted; as root: "
                f"umount --lazy {record['folder']}"
            )

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Report the volume or the file."""
        left = []
        if _mounted(record["token"]):
            left.append(
                f"a volume {record['token']} is mounted over {record['folder']}"
            )
        if _ballast(record).exists():
            left.append(f"the file {_ballast(record)} is there")
        return left

    def _chosen(self, site: Site) -> tuple[Path, str]:
        folder = site.trace_folder
        if folder is None or not folder.is_dir():
            raise FaultRefusedError(
                f"{site.name} has no folder of trace files",
                "let the target's Triton write traces to one: `trace_folder`",
            )
        reasons = []
        for name, reason in (
            ("fill", _cannot_fill(folder)),
            ("mount", _cannot_mount(site)),
        ):
            if self.mechanism in {"auto", name}:
                if reason is None:
                    return folder, name
                reasons.append(f"{name}: {reason}")
        raise FaultRefusedError(
            f"{folder} cannot be made full ({'; '.join(reasons)})",
            f"give it a volume of its own: mount -t tmpfs -o size=16m tmpfs {folder}",
        )


def _cannot_fill(folder: Path) -> str | None:
    if not folder.is_mount():
        return "it is not a volume of its own"
    found = os.statvfs(folder)
    size = found.f_frsize * found.f_blocks
    if size > _SMALL_BYTES:
        return f"its volume has {size} bytes, more than {_SMALL_BYTES}"
    if not os.access(folder, os.W_OK):
        return "it cannot be written to"
    return None


def _cannot_mount(site: Site) -> str | None:
    if os.geteuid() != 0:
        return "needs root"
    server = site.server()
    if server is not None and not _same_mounts(server.pid):
        return "the server has mounts of its own"
    if programs.find("mount") is None or programs.find("umount") is None:
        return "mount is not installed"
    tried = programs.attempt(
        "", ["unshare", "--mount", "mount", "-t", "tmpfs", "probe", "/mnt"]
    )
    return f"mount fails ({tried.stderr.strip()})" if tried.returncode else None


def _same_mounts(pid: int) -> bool:
    with contextlib.suppress(OSError):
        theirs = Path(f"/proc/{pid}/ns/mnt").readlink()
        return theirs == Path("/proc/self/ns/mnt").readlink()
    return False


def _ballast(record: dict[str, Any]) -> Path:
    return Path(record["folder"]) / f".{record['token']}"


def _fill(file: Path) -> None:
    """Write until the disk is full; at most the size of a small volume."""
    written = 0
    with file.open("wb", buffering=0) as ballast:
        size = len(_CHUNK)
        while written <= _SMALL_BYTES:
            try:
                written += ballast.write(_CHUNK[:size])
            except OSError as error:
                if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                    raise FaultFailedError(f"cannot fill {file}: {error}") from None
                if size == 1:
                    return
                size = max(size // 2, 1)
    raise FaultFailedError(f"{file.parent} took {written} bytes and is not full")


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_frsize * found.f_bavail


def _mounted(token: str) -> bool:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
            before, _, after = line.partition(" - ")
            if token in after.split()[1:2] and before:
                return True
    return False
