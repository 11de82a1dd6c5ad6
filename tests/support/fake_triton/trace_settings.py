"""Trace settings as Triton keeps them: global ones, and what models set for themselves."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from fake_triton.behaviours import INVALID_ARGUMENT, Status
from fake_triton.repository import RefusedError, refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Settings = dict[str, list[str]]

LEVELS: Final = frozenset({"OFF", "TIMESTAMPS", "TENSORS"})
NUMBERS: Final = frozenset({"trace_rate", "trace_count", "log_frequency"})
DEFAULTS: Final[Mapping[str, tuple[str, ...]]] = {
    "trace_level": ("OFF",),
    "trace_rate": ("1000",),
    "trace_count": ("-1",),
    "log_frequency": ("0",),
}
FILE_IS_FIXED: Final = Status(
    "UNIMPLEMENTED",
    501,
    "trace file location can not be updated through network protocol",
)


class TraceSettings:
    """Thread-safe; every value is a list of strings, as on the wire.

    Without a `trace_file` Triton takes no level but OFF.
    """

    def __init__(self, trace_file: str) -> None:
        self._lock = threading.Lock()
        self._file = trace_file
        self._global: Settings = {key: list(value) for key, value in DEFAULTS.items()}
        self._models: dict[str, Settings] = {}

    def get(self, model: str) -> Settings:
        """The settings in force for a model, or the global ones for ""."""
        with self._lock:
            merged = {**self._global, **self._models.get(model, {})}
        return {**merged, "trace_file": [self._file], "trace_mode": ["triton"]}

    def update(
        self, model: str, changes: Mapping[str, Sequence[str] | None]
    ) -> Settings:
        """Set what is given; None or an empty list clears back; unknown keys are ignored.

        RefusedError, and nothing changed, if one of them cannot be.
        """
        if "trace_file" in changes:
            raise RefusedError(FILE_IS_FIXED)
        known = {key: value for key, value in changes.items() if key in DEFAULTS}
        for key, value in known.items():
            self._check(key, value or ())
        with self._lock:
            target = self._models.setdefault(model, {}) if model else self._global
            for key, value in known.items():
                if value:
                    target[key] = list(value)
                elif model:
                    target.pop(key, None)
                else:
                    target[key] = list(DEFAULTS[key])
        return self.get(model)

    def _check(self, key: str, value: Sequence[str]) -> None:
        if key in NUMBERS and any(not _is_integer(item) for item in value):
            raise refused(
                INVALID_ARGUMENT, f"Unable to parse '{key}', got: {', '.join(value)}"
            )
        if key == "trace_level":
            if set(value) - LEVELS:
                raise refused(
                    INVALID_ARGUMENT, f"Unable to parse '{key}', got: {list(value)}"
                )
            if not self._file and set(value) - {"OFF"}:
                raise refused(INVALID_ARGUMENT, "trace file name is not given")


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
