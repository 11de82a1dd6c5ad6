"""The installed `tritonwatch`, and programs in a Python of their own, run to their end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from waiting import patience

COMMAND = str(Path(sys.executable).with_name("tritonwatch"))


def tritonwatch(
    *arguments: object, timeout: float = 60, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run it with these arguments; its exit status and what it wrote."""
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience(timeout),
        check=False,
        **options,
    )


def python(program: str, *arguments: object, **options: Any) -> str:
    """Return the output of a program run by a new Python; it must exit with 0."""
    ended = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
        **options,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
