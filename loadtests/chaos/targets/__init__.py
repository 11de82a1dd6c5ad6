"""Targets of experiments: each is a settings model with `kind`, and one line in the union."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from loadtests.chaos.targets.chaos_target import (
    NotAllowedError,
    Target,
    require_allowed,
)
from loadtests.chaos.targets.target_kinds import (
    ContainerTarget,
    EmbeddedTarget,
    ProcessTarget,
)

AnyTarget = Annotated[
    ContainerTarget | EmbeddedTarget | ProcessTarget,
    Field(discriminator="kind"),
]
"""Every target, distinguished by its `kind`."""

__all__ = ["AnyTarget", "NotAllowedError", "Target", "require_allowed"]
