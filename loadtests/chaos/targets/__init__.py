"""Targets: a settings model with `kind` each, and one line here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from loadtests.chaos.targets.addressed import (
    ContainerTarget,
    KubernetesTarget,
    ProcessTarget,
)
from loadtests.chaos.targets.base import NotAllowedError, Target, require_allowed
from loadtests.chaos.targets.embedded import EmbeddedTarget

AnyTarget = Annotated[
    ContainerTarget | EmbeddedTarget | KubernetesTarget | ProcessTarget,
    Field(discriminator="kind"),
]
"""Every target, told by its `kind`."""

__all__ = ["AnyTarget", "NotAllowedError", "Target", "require_allowed"]
