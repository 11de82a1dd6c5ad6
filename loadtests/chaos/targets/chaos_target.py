"""The base of every target: a deployment that is brought up or found."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from exporter.errors import ConfigError
from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from loadtests.chaos.measuring.observations import What
    from loadtests.chaos.site import Site

    Note = Callable[[What, Mapping[str, Any]], None]
    """Records an event of the deployment, with the present time."""

ALWAYS_ALLOWED: Final = "embedded"


class NotAllowedError(ConfigError):
    """The target is not on the allow-list."""

    def __init__(self, name: str, allowed: Sequence[str]) -> None:
        listed = ", ".join(allowed) or "nothing"
        problem = (
            f"found {name!r}, which is not on the allow-list ({listed}, and the "
            f"embedded Triton); give --allow {name} if it may be broken"
        )
        super().__init__("the target", [problem])


def require_allowed(target: Target, allowed: Sequence[str]) -> None:
    """Raise unless the target is on the list; its entries may be shell-style patterns.

    Raises:
        NotAllowedError: it is not.
    """
    name = target.name
    if name != ALWAYS_ALLOWED and not any(fnmatchcase(name, p) for p in allowed):
        raise NotAllowedError(name, allowed)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings that a run gives to its target."""

    scratch: Path
    """A folder of the run's own."""
    token: str
    """Token in the environment of every started process (`TRITONWATCH_CHAOS`)."""
    note: Note
    seed: int
    alerts: bool
    """True if alerts are expected, so that a Prometheus is needed."""
    folder: Path = Path()
    """Folder of the experiment, for files that the sidecar's configuration names."""


class Target(Settings):
    """A deployment. `kind` names it in experiments."""

    sidecar: dict[str, Any] | None = Field(default=None)
    """Configuration of a sidecar that the run starts, over its defaults; {} for the defaults
    alone. None is started where left out.
    """
    sidecar_restart_seconds: float | None = Field(default=0.5, ge=0, le=600)
    """Time from the sidecar's end to its next start, as with systemd; null for never."""
    prometheus: bool = Field(default=False)
    """Start a Prometheus that scrapes that sidecar, with the shipped rules; an experiment that
    waits for an alert has one anyway.
    """
    collector: bool = Field(default=False)
    """Start an OpenTelemetry collector, to which that sidecar pushes every second."""
    proxy: bool = Field(default=False)
    """Put a TCP proxy between Triton and both the load and the sidecar, for faults of
    the network without root."""

    @property
    def name(self) -> str:
        """Its name on the allow-list."""
        raise NotImplementedError

    def opened(self, around: Surroundings) -> AbstractContextManager[Site]:
        """Start or find the target; a target that was started ends with the block.

        Raises:
            LoadError, TritonwatchError: it does not come up, or is not there.
        """
        raise NotImplementedError
