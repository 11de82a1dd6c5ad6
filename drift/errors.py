"""The exceptions of this package.

DriftError
├── SchemaError    the features asked for do not fit together or the data
├── ProfileError   a reference cannot be built, or does not fit the model
├── DataError      a data file cannot be read; has its place
└── StateError     saved bytes are foreign, damaged, or of another version
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence


class DriftError(Exception):
    """Base of every error this package raises on purpose."""


class SchemaError(DriftError):
    """A feature list that cannot be watched: doubled names, unknown tensors."""


class ProfileError(DriftError):
    """A reference that cannot be built or does not fit; carries every difference."""

    def __init__(self, differences: Sequence[str]) -> None:
        self.differences = tuple(differences)
        super().__init__("; ".join(self.differences))


class DataError(DriftError):
    """A data file, or a part of it, does not have the required form.

    `where` is the file, with line and column where they are known.
    """

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(f"{where}: {problem}")


class StateError(DriftError):
    """Saved bytes are foreign, damaged, or of another version."""


UNREADABLE: Final = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""Errors of code that reads a damaged payload; turned into `StateError`."""
