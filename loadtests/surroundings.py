"""Versions and hardware of a run, for its report."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

_DISTRIBUTIONS: Final = ("tritonwatch", "grpcio", "numpy")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the sending and measuring packages."""
    found = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, Any]:
    """Return processors, memory and kernel of the sending machine, as far as readable."""
    found: dict[str, Any] = {
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cpus": len(os.sched_getaffinity(0)),
    }
    cpu = _line("/proc/cpuinfo", "model name")
    if cpu is not None:
        found["cpu"] = cpu
    memory = _line("/proc/meminfo", "MemTotal")
    if memory is not None:
        found["memory_bytes"] = int(memory.split()[0]) * 1024
    return found


def _line(path: str, key: str) -> str | None:
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except OSError:
        return None
    values = (line.partition(":")[2] for line in lines if line.startswith(key))
    return next((value.strip() for value in values), None)
