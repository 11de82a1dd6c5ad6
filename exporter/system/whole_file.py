"""Files that are there in full or not at all: written at once, read with doubt."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from exporter.errors import UnusableFileError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ASIDE: Final = ".set-aside"
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def read(path: Path, most_bytes: int) -> bytes:
    """The bytes of a regular file.

    Raises:
        OSError: it cannot be read.
        UnusableFileError: it is not a regular file, or has more than `most_bytes`.
    """
    # Opening a pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise UnusableFileError(f"{path} is not a regular file")
        if found.st_size > most_bytes:
            raise UnusableFileError(
                f"{path} has {found.st_size} bytes; the maximum is {most_bytes}"
            )
        return file.read(most_bytes)


def write(
    path: Path, data: bytes | Iterable[bytes | memoryview], mode: int = 0o600
) -> None:
    """Replace the file atomically: a reader finds the old or the new content, complete.

    `data` may come in parts, which spares the memory of joining them.

    Raises:
        OSError: it could not be written; the old one is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Always the same name, so that processes killed here leave no more than one.
    draft = path.with_name(f".{path.name}.new")
    try:
        # An existing file is not opened: a pipe would wait for a reader.
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, _NEW, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def stamp(path: Path) -> tuple[int, int, int] | None:
    """Return values that change when the file does; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def set_aside(path: Path) -> Path:
    """Rename an unusable file, so that it can be inspected; return its new name.

    Raises:
        OSError: it could not be renamed.
    """
    return path.replace(path.with_name(path.name + ASIDE))
