"""The undo journal of a run, on disk before anything is broken.

One file a run, one JSON object a line, each on disk (fsync) before the run continues:

    {"run": "kill_stub-3f2a", "runner": [812, 55012], "token": "tw1f…", "scratch": "/tmp/…"}
    {"open": 1, "kind": "freeze_server", "record": {"processes": [[801, 54411]]}}
    {"closed": 1}

The file is locked while the runner or its watchdog lives; `tritonwatch chaos undo` uses
unlocked ones. It is removed when nothing in it is open.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from loadtests.chaos.primitives.process_refs import ProcessRef, new_token
from loadtests.errors import LoadError

SUFFIX: Final = ".undo.jsonl"
MAX_BYTES: Final = 64 << 20
_MARKER: Final = ".tritonwatch-scratch"
"""Marker file in every folder that an experiment made for itself."""


class JournalError(LoadError):
    """An undo record cannot be kept or read; nothing may be broken without one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One fault that may be in effect, and all that its `revert` needs."""

    number: int
    kind: str
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a journal."""

    run: str
    target: str | None
    """Name of the target that it breaks, unless that is its own."""
    runner: ProcessRef | None
    token: str | None
    """Token in the environment of every process that the run started."""
    scratch: Path | None
    """A folder of the run's own, removed when it is over."""
    entries: tuple[Entry, ...]
    """Faults that are not closed, in the order of injection."""
    problems: tuple[str, ...] = ()
    """Lines that cannot be understood."""
    host: str | None = None
    """Name of the host that its faults are on."""


class Journal:
    """The journal of a run, also in another process that has inherited its descriptor."""

    def __init__(self, path: Path, descriptor: int, token: str) -> None:
        self.path = path
        self.token = token
        self._descriptor = descriptor
        self._next = 1

    @classmethod
    def create(cls, folder: Path, run: str, **header: str | None) -> Self:
        """A new one, `run` being its name, locked; `header` has `scratch` and `target`.

        Raises:
            JournalError: the folder cannot be written to.
        """
        path = folder / f"{run}{SUFFIX}"
        draft = folder / f".{run}.new"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            descriptor = os.open(draft, flags | os.O_NOFOLLOW, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # It must not be visible before it is locked: `undo` would take it for done.
            path.hardlink_to(draft)
            draft.unlink()
        except OSError as error:
            raise JournalError(
                f"{path} cannot be created: {error.strerror}; no fault is injected "
                "without a record of how to undo it: choose another folder with "
                "--state"
            ) from None
        journal = cls(path, descriptor, new_token())
        runner = ProcessRef.of(os.getpid())
        journal.write(
            {
                "run": run,
                "runner": None if runner is None else runner.to_record(),
                "token": journal.token,
                "host": platform.node(),
                **header,
            }
        )
        _sync_folder(folder)
        return journal

    def fileno(self) -> int:
        """Return its descriptor; a process that inherits it holds the lock, too."""
        return self._descriptor

    def open(self, kind: str, record: dict[str, Any]) -> Entry:
        """Add a fault that will be injected; its record is on disk on return."""
        entry = Entry(self._next, kind, record)
        self._next += 1
        self.write({"open": entry.number, "kind": kind, "record": record})
        return entry

    def closed(self, entry: Entry) -> None:
        """Record that a fault is reverted without remains."""
        self.write({"closed": entry.number})

    def contents(self) -> Contents:
        """Return its present contents, also of a file that was removed."""
        return _contents(self.path, os.pread(self._descriptor, MAX_BYTES, 0))

    def end(self) -> None:
        """Release the lock; remove the file if no fault in it is open."""
        if self._descriptor < 0:
            return
        remove_if_done(self.path)
        os.close(self._descriptor)
        self._descriptor = -1

    def write(self, line: dict[str, Any]) -> None:
        """Append a line.

        Raises:
            JournalError: it is not on disk.
        """
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        try:
            written = os.write(self._descriptor, data)
            os.fsync(self._descriptor)
        except OSError as error:
            raise JournalError(
                f"{self.path} cannot be written: {error.strerror}"
            ) from None
        if written != len(data):
            # Else the next line would continue this one.
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
            raise JournalError(f"{self.path} cannot be written: its volume is full")


def read(path: Path) -> Contents:
    """The journal in a file.

    A last line without its end was being written when the runner was killed: what it
    announces had not begun.

    Raises:
        JournalError: no such file, it is no journal, or not ours.
    """
    with os.fdopen(_opened(path), "rb") as file:
        return _contents(path, file.read(MAX_BYTES))


def _contents(path: Path, raw: bytes) -> Contents:
    header: dict[str, Any] = {}
    entries: dict[int, Entry] = {}
    problems: list[str] = []
    for number, line in enumerate(raw.split(b"\n")[:-1], 1):
        try:
            _apply(json.loads(line), header, entries)
        except (ValueError, LookupError, TypeError, RecursionError):
            problems.append(
                f"{path}, line {number}: not a line of an undo journal; if nothing else "
                "is left, delete the file"
            )
    scratch, runner = header.get("scratch"), header.get("runner")
    return Contents(
        target=header.get("target"),
        run=str(header.get("run", path.name.removesuffix(SUFFIX))),
        runner=None if runner is None else ProcessRef.from_record(runner),
        token=header.get("token"),
        scratch=None if scratch is None else Path(scratch),
        entries=tuple(entries.values()),
        problems=tuple(problems),
        host=header.get("host"),
    )


def _apply(
    line: dict[str, Any], header: dict[str, Any], entries: dict[int, Entry]
) -> None:
    if "open" in line:
        number = int(line["open"])
        entries[number] = Entry(number, str(line["kind"]), dict(line["record"]))
    elif "closed" in line:
        entries.pop(int(line["closed"]), None)
    elif "run" in line:
        if line.get("runner") is not None:
            ProcessRef.from_record(line["runner"])
        if line.get("scratch") is not None:
            Path(line["scratch"])
        header.update(line)


def default_folder() -> Path:
    """`$XDG_STATE_HOME/tritonwatch/chaos`, by default below ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "tritonwatch" / "chaos"


def lock(path: Path, *, even_locked: bool = False) -> int | None:
    """Return its descriptor, locked; None where its run is active or it was removed.

    `even_locked` returns the descriptor of an active run too.

    Raises:
        JournalError: it is not ours.
    """
    try:
        descriptor = _opened(path)
    except JournalError:
        if path.is_symlink() or path.exists():
            raise
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its run may have ended, and removed it, between the two.
        if path.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except BlockingIOError:
        if even_locked:
            return descriptor
    except FileNotFoundError:
        pass
    os.close(descriptor)
    return None


def _opened(path: Path) -> int:
    """Open a journal that no other user can have written.

    What a journal names is killed, overwritten and removed with the rights of the user
    who runs the undo.
    """
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        try:
            descriptor = os.open(path, flags | os.O_RDWR | os.O_APPEND)
        except OSError as error:
            if error.errno not in {errno.EROFS, errno.EPERM}:
                raise
            # Its volume is read-only now; its faults are undone all the same.
            descriptor = os.open(path, flags | os.O_RDONLY)
    except OSError as error:
        raise JournalError(f"{path} cannot be opened: {error.strerror}") from None
    reason = _distrusted(os.fstat(descriptor))
    if reason is None:
        return descriptor
    os.close(descriptor)
    raise JournalError(f"{path} is not trusted and was not read: {reason}")


def _distrusted(status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid}; run the undo as that user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write to it (chmod go-w if it is yours)"
    return None


def new_scratch() -> Path:
    """A new folder that `remove_scratch` recognises."""
    folder = Path(tempfile.mkdtemp(prefix="tritonwatch-chaos-"))
    (folder / _MARKER).touch(0o600)
    return folder


def remove_scratch(folder: Path) -> str | None:
    """Remove a folder that `new_scratch` made; return why it is left, if it is.

    A journal is no reason to remove any other folder.
    """
    if not os.path.lexists(folder):
        return None
    try:
        marker = (folder / _MARKER).lstat()
        own = stat.S_ISREG(marker.st_mode) and marker.st_uid == os.geteuid()
        if own and stat.S_ISDIR(folder.lstat().st_mode):
            shutil.rmtree(folder)
            return None
    except OSError as error:
        return f"the folder {folder} cannot be removed: {error.strerror}"
    return f"the folder {folder} is not one that an experiment made; it stays"


def remove_if_done(path: Path) -> None:
    """Remove it where nothing in it is open and every line was understood."""
    try:
        contents = read(path)
    except JournalError:
        return
    if not contents.entries and not contents.problems:
        with contextlib.suppress(OSError):  # it stays, and says that nothing is open
            path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
