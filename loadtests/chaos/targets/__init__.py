"""Targets, one module each: a settings model with `kind`, and one line here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from loadtests.chaos.targets.base import NotAllowedError, Target, require_allowed
from loadtests.chaos.targets.container import ContainerTarget
from loadtests.chaos.targets.embedded import EmbeddedTarget
from loadtests.chaos.targets.kubernetes import KubernetesTarget
from loadtests.chaos.targets.process import ProcessTarget

AnyTarget = Annotated[
    ContainerTarget | EmbeddedTarget | KubernetesTarget | ProcessTarget,
    Field(discriminator="kind"),
]
"""Every target, told by its `kind`."""

__all__ = ["AnyTarget", "NotAllowedError", "Target", "require_allowed"]
