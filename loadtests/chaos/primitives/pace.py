"""Work at a fixed pace in a thread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from exporter.system.background import Background

if TYPE_CHECKING:
    from collections.abc import Callable


class Pace(Background):
    """Calls a function at a fixed pace while its block lasts, first one pace from now."""

    def __init__(
        self,
        every_seconds: float,
        act: Callable[[], object],
        *,
        end_seconds: float = 5.0,
    ) -> None:
        super().__init__(end_seconds=end_seconds)
        self._every = every_seconds
        self._act = act

    def _work(self) -> None:
        due = time.monotonic() + self._every
        while not self._over.wait(max(due - time.monotonic(), 0.0)):
            self._act()
            # One that took longer than the pace is not made up for.
            due = max(due + self._every, time.monotonic())
