"""NVIDIA's management library: settings, and whether it is there at all.

What reads it is in `nvml_reader`, and imported only where the library exists.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from exporter.features.energy.sources.power_source import SourceSettings, Surroundings

if TYPE_CHECKING:
    from exporter.features.energy.sources.power_source import Boundary, PowerSource

_LIBRARY: Final = "libnvidia-ml.so.1"
_CACHE: Final = "/etc/ld.so.cache"
_FOLDERS: Final = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
)


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
    """Return whether the loader would find NVML, without loading anything."""
    folders = (*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *_FOLDERS)
    return any(f and (Path(f) / _LIBRARY).exists() for f in folders) or _is_cached()


def _is_cached() -> bool:
    """Return whether the loader's cache has it: one file to read, no process."""
    try:
        return _LIBRARY.encode() in Path(_CACHE).read_bytes()
    except OSError:
        return False
