"""Faults, one module each: a settings model with `kind`, and one line in `AnyFault`."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from loadtests.chaos.faults.base import Fault, FaultFailedError, FaultRefusedError
from loadtests.chaos.faults.freeze_server import FreezeServer

AnyFault = Annotated[FreezeServer, Field(discriminator="kind")]
"""Every fault, told by its `kind`."""

FAULTS: Final[dict[str, type[Fault]]] = {
    str(fault.model_fields["kind"].default): fault for fault in (FreezeServer,)
}
"""By kind, for whoever has a record to revert."""

__all__ = ["FAULTS", "AnyFault", "Fault", "FaultFailedError", "FaultRefusedError"]
