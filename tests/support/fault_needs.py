"""What a fault needs of a machine, seen by other means than the fault's own.

Where all of it is there, a fault that is refused is refused wrongly, and its test fails.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from parts import require, require_root

_SYS_ADMIN = 21
"""Of capabilities(7): root in a container may not have it."""


def require_for(fault: dict[str, Any]) -> None:
    """Go on only where nothing speaks against this fault, as experiments write it.

    What a fault wants of its target is the test's to bring.
    """
    kind = fault["kind"]
    if kind == "disk_full":
        _require_capabilities("mounting a small disk")
        require("mount", "umount")
    elif kind == "prometheus_away":
        require("prometheus")


def _require_capabilities(what: str) -> None:
    require_root(what)
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (held,) = (int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    if not held >> _SYS_ADMIN & 1:
        pytest.skip(f"{what} needs CAP_SYS_ADMIN, which root has not here")
