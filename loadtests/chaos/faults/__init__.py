"""Faults: each is a settings model with `kind`, and one line in `AnyFault`.

One module a family: process_faults, loading (of models), models (wrong answers),
bad_requests, network, resources, peers (of the sidecar), disk_full, clock_jump.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, get_args

from pydantic import Field, TypeAdapter, ValidationError

from loadtests.chaos.faults.bad_requests import CorruptInputs, OversizedInputs
from loadtests.chaos.faults.clock_jump import ClockJump
from loadtests.chaos.faults.disk_full import DiskFull
from loadtests.chaos.faults.fault import Fault, FaultFailedError, FaultRefusedError
from loadtests.chaos.faults.loading import ResponseCache, UnloadModel
from loadtests.chaos.faults.models import ErringModel, LyingModel
from loadtests.chaos.faults.network import (
    Bandwidth,
    NetworkDelay,
    NetworkJitter,
    NetworkLoss,
    Partition,
    Reset,
)
from loadtests.chaos.faults.peers import OtlpHang, PrometheusAway, TapStalled
from loadtests.chaos.faults.process_faults import (
    FreezeServer,
    FreezeStub,
    KillServer,
    KillSidecar,
    KillStub,
    RestartLoop,
)
from loadtests.chaos.faults.resources import (
    CpuHog,
    CpuLimit,
    Descriptors,
    MemoryHog,
    MemoryLimit,
)

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
"""Every fault, distinguished by its `kind`."""

FAULTS: Final[dict[str, type[Fault]]] = {
    fault.name(): fault for fault in get_args(_AnyFault)
}
"""Faults by kind, for reverting from a record."""

_ADAPTER: Final[TypeAdapter[Fault]] = TypeAdapter(AnyFault)


def parse(given: Any, where: str) -> Fault:
    """Return the fault that an experiment describes.

    Raises:
        ValueError: it describes none; names every problem.
    """
    try:
        return _ADAPTER.validate_python(given)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc']))}: {item['msg']}"
            for item in error.errors(include_url=False)
        )
        raise ValueError(
            f"invalid fault in {where}: {problems}; "
            "`tritonwatch chaos list` shows faults and their settings"
        ) from None


__all__ = [
    "FAULTS",
    "AnyFault",
    "Fault",
    "FaultFailedError",
    "FaultRefusedError",
    "parse",
]
