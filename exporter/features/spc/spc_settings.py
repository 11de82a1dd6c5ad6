"""Charts over what is exposed: is a number still what it was when all was well?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from exporter.access.collector_base import CollectorSettings
from exporter.features.spc.signal_settings import SignalSettings

if TYPE_CHECKING:
    from exporter.access.collector_base import Access
    from exporter.features.spc.spc_collector import SpcCollector


class SpcSettings(CollectorSettings):
    """Process control: Shewhart, EWMA, CUSUM and Page-Hinkley charts over any signal."""

    kind: Literal["spc"] = "spc"
    signals: tuple[SignalSettings, ...] = Field(default=(), max_length=500)
    """What is under control."""
    state_file: Path | None = Field(default=None)
    """Where baselines and alarms outlive this process; without it a restart learns anew,
    and takes on trust that all is well then."""
    save_seconds: float = Field(default=60.0, ge=1, le=86400)
    """Time between two writes of that file."""

    @model_validator(mode="after")
    def _distinct(self) -> SpcSettings:
        names = [signal.name for signal in self.signals]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"found two signals called {twice[0]!r}; each may stand once"
            )
        return self

    def build(self, access: Access) -> SpcCollector:
        """The collector."""
        from exporter.features.spc.spc_collector import SpcCollector  # noqa: PLC0415 - only if configured

        return SpcCollector(self, access)
