"""The server gets only so much of a CPU: a quota of its control group."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field

from loadtests.chaos.faults.group_limit import GroupLimit

_PERIOD_MICROSECONDS: Final = 100_000


class CpuLimit(GroupLimit):
    """A container with a CPU limit: work goes on in slices of 100 ms, then waits."""

    kind: Literal["cpu_limit"] = "cpu_limit"
    cpu_percent: float = Field(default=20.0, ge=1, le=100_000)
    """Of one CPU's time, for the server and its backend processes together."""

    strength: ClassVar[str | None] = "cpu_percent"
    controller: ClassVar[str] = "cpu"

    def limits(self, version: int) -> list[tuple[str, str]]:
        """The quota of each period."""
        quota = round(self.cpu_percent / 100 * _PERIOD_MICROSECONDS)
        if version == 1:
            return [
                ("cpu.cfs_period_us", str(_PERIOD_MICROSECONDS)),
                ("cpu.cfs_quota_us", str(quota)),
            ]
        return [("cpu.max", f"{quota} {_PERIOD_MICROSECONDS}")]
