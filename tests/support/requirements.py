"""What a test needs and a machine may lack: skipped with how to get it, failed in CI."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING, NoReturn

import pytest

from exporter.errors import EmbeddedTritonError
from exporter.triton import backend

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

# Debian's packages, where they are not called as what is in them.
_PACKAGES = {
    "promtool": "prometheus",
    "amtool": "prometheus-alertmanager",
    "nginx": "nginx-light",
    "systemd-analyze": "systemd",
}
_NOBODY = 65_534


def missing(*commands: str) -> str | None:
    """What to install for these commands, None where all are here."""
    absent = [name for name in commands if shutil.which(name) is None]
    if not absent:
        return None
    install = " ".join(dict.fromkeys(_PACKAGES.get(name, name) for name in absent))
    return f"{' and '.join(absent)} not installed: apt-get install {install}"


def lacking(message: str) -> NoReturn:
    """The one place where a test does without: a gap here, a failure in CI."""
    if os.environ.get("CI"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def require(*commands: str) -> None:
    """Go on only with these programs."""
    message = missing(*commands)
    if message is not None:
        lacking(message)


def require_triton() -> Path:
    """The folder of the embedded Triton."""
    try:
        return backend.inspect(backend.find()).folder
    except EmbeddedTritonError as error:
        lacking(str(error))


def require_root(what: str) -> None:
    """Go on only as root; nothing to install makes anybody root, in CI neither."""
    if os.geteuid() != 0:
        pytest.skip(f"{what} needs root: run the tests as root")


@contextlib.contextmanager
def as_nobody() -> Generator[None]:
    """Within, files and processes of root's are another user's, for root as for anyone else.

    Only below a folder that nobody can reach: see the fixture `reachable_path`.
    """
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(_NOBODY, _NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
