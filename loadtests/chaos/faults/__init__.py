"""Faults, one module each: a settings model with `kind`, and one line in `AnyFault`."""

from __future__ import annotations

from typing import Annotated, Final, get_args

from pydantic import Field

from loadtests.chaos.faults.bandwidth import Bandwidth
from loadtests.chaos.faults.base import Fault, FaultFailedError, FaultRefusedError
from loadtests.chaos.faults.freeze_server import FreezeServer
from loadtests.chaos.faults.network_delay import NetworkDelay
from loadtests.chaos.faults.network_jitter import NetworkJitter
from loadtests.chaos.faults.network_loss import NetworkLoss
from loadtests.chaos.faults.partition import Partition
from loadtests.chaos.faults.reset import Reset

_AnyFault = (
    # Processes and the server.
    FreezeServer
    # The network.
    | Bandwidth
    | NetworkDelay
    | NetworkJitter
    | NetworkLoss
    | Partition
    | Reset
)
AnyFault = Annotated[_AnyFault, Field(discriminator="kind")]
"""Every fault, told by its `kind`."""

FAULTS: Final[dict[str, type[Fault]]] = {
    str(fault.model_fields["kind"].default): fault for fault in get_args(_AnyFault)
}
"""By kind, for whoever has a record to revert."""

__all__ = ["FAULTS", "AnyFault", "Fault", "FaultFailedError", "FaultRefusedError"]
