"""The base of every settings model: frozen, and unknown keys are refused."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_RESERVED_HEADER: Final = re.compile(
    r"grpc-.*|connection|content-(type|length|encoding)|host|te|transfer-encoding"
    r"|inference-header-content-length",
    re.IGNORECASE,
)


class Settings(BaseModel):
    """A part of the configuration file."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )


class ModelFilter(Settings):
    """Selects models by shell-style patterns over their names."""

    include: tuple[str, ...] = Field(default=("*",))
    """Patterns of names to take."""
    exclude: tuple[str, ...] = Field(default=())
    """Patterns of names to leave out; wins over `include`."""

    def matches(self, name: str) -> bool:
        """Return whether the model called `name` is selected."""
        return any(fnmatchcase(name, p) for p in self.include) and not any(
            fnmatchcase(name, p) for p in self.exclude
        )


def _sendable(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    """The headers, which HTTP and gRPC can send as they are.

    Raises:
        ValueError: one cannot be sent, or is the protocol's own; names no value.
    """
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower().endswith("-bin"):
            raise ValueError(
                f"found header {name!r}; want a name of letters, digits, '-', '_' "
                "and '.' that does not end in '-bin'"
            )
        if _RESERVED_HEADER.fullmatch(name):
            raise ValueError(f"found header {name!r}, which the protocol sets")
        if not _HEADER_VALUE.fullmatch(value.get_secret_value()):
            raise ValueError(
                f"found header {name!r} with a value that cannot be sent; want "
                "printable ASCII on one line"
            )
    return headers


Headers = Annotated[dict[str, SecretStr], AfterValidator(_sendable)]
"""Headers that HTTP and gRPC can send as they are."""
