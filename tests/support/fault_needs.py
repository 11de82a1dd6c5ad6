"""What a fault needs of a machine, seen by other means than the fault's own.

Where all of it is there, a fault that is refused is refused wrongly, and its test fails.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from parts import require, require_root

_GROUPS = Path("/sys/fs/cgroup")
_LIMITS = {
    "cpu": ("cpu.max", "cpu.cfs_quota_us"),
    "memory": ("memory.max", "memory.limit_in_bytes"),
}
"""What a control group has that can be limited, in version 2 and in version 1."""
_SYS_ADMIN = 21
"""Of capabilities(7): root in a container may not have it."""


def require_for(fault: dict[str, Any]) -> None:
    """Go on only where nothing speaks against this fault, as experiments write it.

    What a fault wants of its target is the test's to bring.
    """
    kind = fault["kind"]
    if kind in {"cpu_limit", "memory_limit"}:
        require_root("a control group")
        _require_group(kind.removesuffix("_limit"))
    elif kind == "disk_full":
        _require_capabilities("mounting a small disk")
        require("mount", "umount")
    elif kind == "clock_jump":
        require("faketime")
    elif kind == "prometheus_away":
        require("prometheus")


def _require_capabilities(what: str) -> None:
    require_root(what)
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (held,) = (int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    if not held >> _SYS_ADMIN & 1:
        pytest.skip(f"{what} needs CAP_SYS_ADMIN, which root has not here")


def _require_group(controller: str) -> None:
    """Go on only where a group that is made for a moment could be limited."""
    lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    own = next((ln.removeprefix("0::/") for ln in lines if ln.startswith("0::")), "")
    # Version 1 has a tree for each controller; in version 2 a fault's group lies beside
    # the one that the tests and their servers are in.
    beside = (_GROUPS / own).parent if own else _GROUPS
    for parent in (_GROUPS / controller, beside):
        made = parent / f"tests-{os.getpid()}"
        try:
            made.mkdir()
        except OSError:
            continue
        try:
            if any((made / file).exists() for file in _LIMITS[controller]):
                return
        finally:
            made.rmdir()
    pytest.skip(f"no control group with the {controller} controller can be made here")
