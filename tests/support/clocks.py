"""A clock that stands still but where it is moved."""

from __future__ import annotations


class Clock:
    """`clock()` is `clock.now`."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
