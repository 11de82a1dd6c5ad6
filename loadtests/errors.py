"""Errors that load tests raise on purpose, in addition to `exporter.errors`.

TritonwatchError
├── ConfigError
│   └── PlanError        a schedule or payload that cannot be run           (exit 2)
└── LoadError            the run could not be made: nobody there, wrong model (exit 1)
"""

from __future__ import annotations

from exporter.errors import ConfigError, TritonwatchError


class LoadError(TritonwatchError):
    """The run could not be made."""


class PlanError(ConfigError):
    """What is to be sent, or when, is not possible."""

    def __init__(self, problem: str, source: str = "the load") -> None:
        super().__init__(source, [problem])
