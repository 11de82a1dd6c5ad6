"""NVIDIA's management library: settings, and whether it is there at all.

What reads it is in `nvml_reader`, and imported only where the library exists.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from exporter.features.energy.sources.power_source import SourceSettings, Surroundings

if TYPE_CHECKING:
    from exporter.features.energy.sources.power_source import Boundary, PowerSource

_LIBRARY: Final = "libnvidia-ml.so.1"


class NvmlSettings(SourceSettings):
    """NVIDIA boards, through NVML."""

    kind: Literal["nvml"] = "nvml"
    idle_watts: float | None = Field(default=None, ge=0, le=1_000_000)
    """Power of each board while nothing runs. If not set, it is learnt while no model
    is busy; on a server that is always busy it cannot be learnt."""
    boards: tuple[str, ...] = Field(default=(), max_length=64)
    """Boards to read, by uuid or number as `nvidia-smi -L` lists them; all if empty. Where
    several Tritons share a machine, those of this one: others would count as idle.
    """

    @property
    def boundary(self) -> Boundary:
        """The boards."""
        return "gpu"

    def find(self, surroundings: Surroundings) -> PowerSource | None:
        """The source, where the driver is loaded and has a board."""
        if not library_exists():
            return None
        from exporter.features.energy.sources.nvml_reader import NvmlPower  # noqa: PLC0415 - 6 MB

        return NvmlPower.opened(self, surroundings)


def library_exists() -> bool:
    """Return whether the loader finds NVML."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    return True
