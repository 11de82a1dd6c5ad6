"""Faults: each is a settings model with `kind`, and one line in `_AnyFault`.

One module a family: processes, models (wrong answers), unloading of models,
other clients, the network, resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

from pydantic import Field, TypeAdapter, ValidationError

from loadtests.chaos.faults.model_faults import (
    ErringModel,
    LyingModel,
    StalledStream,
    UnloadModel,
)
from loadtests.chaos.faults.network_faults import (
    Bandwidth,
    NetworkDelay,
    NetworkLoss,
    Partition,
    Reset,
)
from loadtests.chaos.faults.process_faults import (
    FreezeServer,
    FreezeStub,
    KillServer,
    KillSidecar,
    KillStub,
)
from loadtests.chaos.faults.sustained_faults import CacheStorm, CpuHog
from loadtests.errors import validation_problems

if TYPE_CHECKING:
    from loadtests.chaos.faults.fault import Fault

_AnyFault = (
    # Processes and the server.
    FreezeServer
    | FreezeStub
    | KillServer
    | KillStub
    # Models.
    | UnloadModel
    | ErringModel
    | LyingModel
    | StalledStream
    # Other clients.
    | CacheStorm
    # The sidecar.
    | KillSidecar
    # The network.
    | Bandwidth
    | NetworkDelay
    | NetworkLoss
    | Partition
    | Reset
    # Resources of the host.
    | CpuHog
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
        problems = "; ".join(validation_problems(error))
        raise ValueError(
            f"invalid fault in {where}: {problems}; "
            "`tritonwatch chaos list` shows faults and their settings"
        ) from None
