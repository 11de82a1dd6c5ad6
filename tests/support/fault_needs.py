"""What a fault needs of a machine, seen by other means than the fault's own.

Where all of it is there, a fault that is refused is refused wrongly, and its test fails.
"""

from __future__ import annotations

from typing import Any

from requirements import require


def require_for(fault: dict[str, Any]) -> None:
    """Go on only where nothing speaks against this fault, as experiments write it.

    What a fault wants of its target is the test's to bring.
    """
    if fault["kind"] == "prometheus_away":
        require("prometheus")
