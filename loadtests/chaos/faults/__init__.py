"""Faults: each is a settings model with `kind`, and one line in `AnyFault`.

Variants of one thing share a module: network, models (wrong answers), resources (limits of
a control group), peers (of the sidecar). Every other fault has a module of its name.
"""

from __future__ import annotations

from typing import Annotated, Final, get_args

from pydantic import Field

from loadtests.chaos.faults.base import Fault, FaultFailedError, FaultRefusedError
from loadtests.chaos.faults.clock_jump import ClockJump
from loadtests.chaos.faults.corrupt_inputs import CorruptInputs
from loadtests.chaos.faults.cpu_hog import CpuHog
from loadtests.chaos.faults.descriptors import Descriptors
from loadtests.chaos.faults.disk_full import DiskFull
from loadtests.chaos.faults.freeze_server import FreezeServer
from loadtests.chaos.faults.freeze_stub import FreezeStub
from loadtests.chaos.faults.kill_server import KillServer
from loadtests.chaos.faults.kill_sidecar import KillSidecar
from loadtests.chaos.faults.kill_stub import KillStub
from loadtests.chaos.faults.memory_hog import MemoryHog
from loadtests.chaos.faults.models import ErringModel, LyingModel
from loadtests.chaos.faults.network import (
    Bandwidth,
    NetworkDelay,
    NetworkJitter,
    NetworkLoss,
    Partition,
    Reset,
)
from loadtests.chaos.faults.oversized_inputs import OversizedInputs
from loadtests.chaos.faults.peers import OtlpHang, PrometheusAway
from loadtests.chaos.faults.resources import CpuLimit, MemoryLimit
from loadtests.chaos.faults.response_cache import ResponseCache
from loadtests.chaos.faults.restart_loop import RestartLoop
from loadtests.chaos.faults.tap_stalled import TapStalled
from loadtests.chaos.faults.unload_model import UnloadModel

_AnyFault = (
    # Processes and the server.
    FreezeServer
    | FreezeStub
    | KillServer
    | KillStub
    | RestartLoop
    | Descriptors
    # Models and what is asked of them.
    | UnloadModel
    | ErringModel
    | LyingModel
    | ResponseCache
    | CorruptInputs
    | OversizedInputs
    # The sidecar.
    | KillSidecar
    | ClockJump
    # The network.
    | Bandwidth
    | NetworkDelay
    | NetworkJitter
    | NetworkLoss
    | Partition
    | Reset
    # Resources of the host and of the server.
    | CpuHog
    | CpuLimit
    | DiskFull
    | MemoryHog
    | MemoryLimit
    # Whom the sidecar talks to.
    | OtlpHang
    | PrometheusAway
    | TapStalled
)
AnyFault = Annotated[_AnyFault, Field(discriminator="kind")]
"""Every fault, told by its `kind`."""

FAULTS: Final[dict[str, type[Fault]]] = {
    str(fault.model_fields["kind"].default): fault for fault in get_args(_AnyFault)
}
"""By kind, for whoever has a record to revert."""

__all__ = ["FAULTS", "AnyFault", "Fault", "FaultFailedError", "FaultRefusedError"]
