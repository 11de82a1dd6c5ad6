"""The base of every settings model: frozen, and unknown keys are refused."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_RESERVED_HEADER: Final = re.compile(
    r"grpc-.*|connection|content-(type|length|encoding)|host|te|transfer-encoding"
    r"|inference-header-content-length",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ModelMention:
    """A place in the configuration that names a model, and inputs of it."""

    place: str
    """Path of the setting."""
    name: str
    is_pattern: bool = False
    inputs: frozenset[str] = frozenset()
    inputs_place: str = ""
    """Path of the mapping that names the inputs."""


def literal_mentions(place: str, names: Iterable[str]) -> Iterator[ModelMention]:
    """The mentions of a mapping by model name."""
    for name in names:
        yield ModelMention(f"{place}.{name}", name)


def pattern_mentions(place: str, patterns: Iterable[str]) -> Iterator[ModelMention]:
    """The mentions of shell-style patterns; "*" names no model."""
    for pattern in patterns:
        if pattern != "*":
            yield ModelMention(f"{place}.{pattern}", pattern, is_pattern=True)


def below(place: str, mentions: Iterable[ModelMention]) -> Iterator[ModelMention]:
    """The same mentions with paths that begin at `place`."""
    for mention in mentions:
        inputs_place = f"{place}.{mention.inputs_place}"
        yield replace(
            mention, place=f"{place}.{mention.place}", inputs_place=inputs_place
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

    def model_mentions(self) -> Iterable[ModelMention]:
        """The models that these settings name."""
        return ()


class ModelFilter(Settings):
    """Selects models by shell-style patterns over their names."""

    include: tuple[str, ...] = Field(default=("*",))
    """Patterns of names to include."""
    exclude: tuple[str, ...] = Field(default=())
    """Patterns of names to exclude. Takes precedence over `include`."""

    def matches(self, name: str) -> bool:
        """Return whether the model called `name` is selected."""
        return any(fnmatchcase(name, p) for p in self.include) and not any(
            fnmatchcase(name, p) for p in self.exclude
        )

    def model_mentions(self) -> Iterable[ModelMention]:
        """The patterns of names to take."""
        return pattern_mentions("include", self.include)


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
