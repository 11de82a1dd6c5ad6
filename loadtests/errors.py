"""Errors that load tests raise on purpose, in addition to `exporter.errors`.

TritonwatchError
├── ConfigError
│   └── PlanError        a schedule or payload that cannot be run           (exit 2)
└── LoadError            the run could not be made: no server, wrong model (exit 1)
    ├── FaultRefusedError   a fault cannot be injected here                 (exit 2)
    └── FaultFailedError    a fault could not be injected or undone
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.errors import ConfigError, TritonwatchError

if TYPE_CHECKING:
    from pydantic import ValidationError


EXIT_OK: Final = 0
EXIT_FINDING: Final = 1
EXIT_USAGE: Final = 2
EXIT_INVALID: Final = 3
"""The numbers are not valid, or the data do not decide."""


class LoadError(TritonwatchError):
    """The run could not be made."""


class PlanError(ConfigError):
    """Requests or a schedule that are not possible."""

    def __init__(self, problem: str, source: str = "") -> None:
        super().__init__(source, [problem])


def validation_problems(error: ValidationError) -> list[str]:
    """Return the problems of a settings model, each with the place of its key."""
    return [
        f"{'.'.join(map(str, item['loc']))}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)
    ]


class FaultRefusedError(LoadError):
    """A fault cannot be injected here; nothing was touched.

    Args:
        reason: what it lacks.
        alternative: what would do instead, or make it possible.
    """

    def __init__(self, reason: str, alternative: str) -> None:
        super().__init__(f"{reason}; {alternative}")


class FaultFailedError(LoadError):
    """A fault could not be injected or reverted."""
