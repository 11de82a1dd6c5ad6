"""Somebody else on the host takes the CPUs: processes that compute for nothing."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from loadtests.chaos.faults.base import Fault
from loadtests.chaos.primitives import agents
from loadtests.chaos.primitives.processes import new_token, started_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.chaos.site import Site

_SLICE_SECONDS: Final = 0.05
_SPIN: Final = range(2000)


class CpuHog(Fault):
    """A noisy neighbour. Everybody on the host gets less, this program too."""

    kind: Literal["cpu_hog"] = "cpu_hog"
    busy_percent: float = Field(default=100.0, gt=0, le=100)
    """Of the time of a CPU that each process takes, if nobody else wants it."""
    processes: int | None = Field(default=None, ge=1, le=1024)
    """How many; by default one for each CPU that this program may use."""
    longest_seconds: float = Field(default=600.0, gt=0, le=86_400)
    """After which they end by themselves."""

    strength: ClassVar[str | None] = "busy_percent"

    def require(self, site: Site) -> None:
        """Nothing: anybody may be a bad neighbour."""

    def prepare(self, site: Site) -> dict[str, Any]:  # noqa: ARG002 - whatever the site
        """Return how many, how busy, and their token."""
        return {
            "token": new_token(),
            "processes": self.processes or len(os.sched_getaffinity(0)),
            "busy_ratio": self.busy_percent / 100,
            "longest_seconds": self.longest_seconds,
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Start them."""
        agents.start(
            record["token"],
            __name__,
            record,
            longest_seconds=record["longest_seconds"],
        )

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Those that do not run."""
        found, wanted = len(started_with(record["token"])), record["processes"]
        return [] if found >= wanted else [f"{found} of {wanted} processes run"]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """End them."""
        agents.stop(record["token"])

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Those that run."""
        return agents.left(record["token"])


def work(settings: dict[str, Any], ready: Callable[[], None]) -> None:
    """Compute for nothing, in so many processes; for ever."""
    parent = os.getpid()
    deadline = time.monotonic() + settings["longest_seconds"]
    for _ in range(settings["processes"] - 1):
        if os.fork() == 0:
            while os.getppid() == parent and time.monotonic() < deadline:
                _burn(settings["busy_ratio"])
            os._exit(0)
    ready()
    while time.monotonic() < deadline:
        _burn(settings["busy_ratio"])


def _burn(busy_ratio: float) -> None:
    """One slice: compute, then rest. By CPU time, so that waiting counts as rest."""
    began, used = time.monotonic(), time.process_time()
    while time.process_time() - used < busy_ratio * _SLICE_SECONDS:
        for _ in _SPIN:
            pass
    rest = _SLICE_SECONDS - (time.monotonic() - began)
    if rest > 0:
        time.sleep(rest)
