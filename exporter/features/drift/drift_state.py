"""State files: written atomically, and validated when they are read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import structlog

from drift.errors import StateError
from exporter.errors import UnusableFileError
from exporter.system import whole_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drift.codec import Buffer
    from drift.reference import Profile
    from exporter.features.drift.drift_settings import Watched

log = structlog.get_logger()

MAX_BYTES: Final = 256 << 20
PROFILE: Final = "profile"
FORMER: Final = "former-profile"
_LONGEST_NAME: Final = 150


def read_whole(path: Path) -> bytes:
    """The bytes of a state or a profile.

    Raises:
        OSError: it cannot be read.
        StateError: it is not a regular file, or larger than any of ours.
    """
    try:
        return whole_file.read(path, MAX_BYTES)
    except UnusableFileError as error:
        raise StateError(str(error)) from None


def _is(data: bytes, profile: Profile) -> bool:
    """Return whether these are the bytes of a profile, by the checksum in their header."""
    return data.partition(b"\n")[0].endswith(profile.fingerprint.encode())


def _require_readable(data: Sequence[Buffer]) -> None:
    size = sum(memoryview(part).nbytes for part in data)
    if size > MAX_BYTES:
        raise StateError(
            f"it has {size} bytes and the maximum is {MAX_BYTES}; watch fewer features or "
            "keep fewer panes"
        )


class Store:
    """The files of one model's watch below a folder; without a folder keeps nothing."""

    def __init__(self, folder: Path | None, model: str, side: Watched) -> None:
        self._folder = folder
        name = quote(model, safe="")
        if len(name) > _LONGEST_NAME:
            digest = hashlib.sha256(model.encode()).hexdigest()
            name = f"{name[:_LONGEST_NAME]}-{digest[:16]}"
        self._stem = f"{name}.{side}"
        self._unsaved: set[str] = set()

    @property
    def kept(self) -> bool:
        """Return whether anything outlives this process."""
        return self._folder is not None

    def _path(self, what: str) -> Path:
        return (self._folder or Path()) / f"{self._stem}.{what}"

    def read(self, what: str) -> bytes | None:
        """Return what was written under that name; None if there is nothing usable.

        Raises:
            OSError: it cannot be read now; it may still be intact.
        """
        if not self.kept:
            return None
        path = self._path(what)
        try:
            return read_whole(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (IsADirectoryError, StateError) as error:
            self.set_aside(what, str(error))
            return None

    def write(self, what: str, *data: Buffer) -> bool:
        """Save; log once if that fails, and once when it works again."""
        if not self.kept:
            return False
        path = self._path(what)
        try:
            _require_readable(data)
            whole_file.write(path, data)
        except (OSError, StateError) as error:
            if what not in self._unsaved:
                log.warning("drift_state_not_saved", file=str(path), reason=str(error))
            self._unsaved.add(what)
            return False
        if what in self._unsaved:
            log.info("drift_state_saved_again", file=str(path))
        self._unsaved.discard(what)
        return True

    def keep(self, profile: Profile) -> bool:
        """Save a learnt reference; the one before stays for a rollback.

        Return whether it was the last one already.
        """
        before = self.read(PROFILE)
        # Not by the bytes: a file of an older version is written anew in other words.
        if before is not None and _is(before, profile):
            return True
        files = [(PROFILE, profile.to_bytes())]
        if before is not None:
            # First what has no other copy: in a rollback the profile, which is the former.
            former = self.read(FORMER)
            is_former = former is not None and _is(former, profile)
            files.insert(is_former, (FORMER, before))
        for what, data in files:
            self.write(what, data)
        return False

    def set_aside(self, what: str, reason: str) -> None:
        """Rename an unusable file, so that it can be inspected, and continue without."""
        path = self._path(what)
        try:
            aside = whole_file.set_aside(path)
        except OSError as error:
            log.warning(
                "drift_state_not_set_aside",
                file=str(path),
                reason=reason,
                problem=str(error),
            )
        else:
            log.warning(
                "drift_state_set_aside",
                file=str(path),
                kept_as=str(aside),
                reason=reason,
            )
