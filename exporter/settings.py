"""The base of every settings model: frozen, and unknown keys are refused."""

from __future__ import annotations

from fnmatch import fnmatchcase

from pydantic import BaseModel, ConfigDict, Field


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
    """Which models are looked at, by shell-style patterns over the model's name."""

    include: tuple[str, ...] = Field(default=("*",))
    """Patterns of names to take."""
    exclude: tuple[str, ...] = Field(default=())
    """Patterns of names to leave out; wins over `include`."""

    def matches(self, name: str) -> bool:
        """Whether the model called `name` is to be looked at."""
        return any(fnmatchcase(name, p) for p in self.include) and not any(
            fnmatchcase(name, p) for p in self.exclude
        )
