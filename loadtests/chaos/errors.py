"""Errors of faults, a part of the tree in `loadtests.errors`."""

from __future__ import annotations

from loadtests.errors import LoadError


class FaultRefusedError(LoadError):
    """A fault cannot be injected here; nothing was touched.

    Args:
        reason: what it lacks.
        alternative: what would do instead, or make it possible.
    """

    def __init__(self, reason: str, alternative: str) -> None:
        super().__init__(f"{reason}; {alternative}")
        self.reason = reason
        self.alternative = alternative


class FaultFailedError(LoadError):
    """A fault was to be injected or reverted and could not be."""
