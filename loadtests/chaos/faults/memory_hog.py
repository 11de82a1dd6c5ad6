"""Somebody else on the host takes memory: a process that holds a share of what is free."""

from __future__ import annotations

import contextlib
import mmap
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from loadtests.chaos.faults.base import Fault, FaultRefusedError
from loadtests.chaos.primitives import agents
from loadtests.chaos.primitives.processes import new_token, started_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.chaos.site import Site

MOST_PERCENT: Final = 80.0
"""Of what is available, ever."""
_CHUNK_BYTES: Final = 16 << 20
_LOOK_SECONDS: Final = 0.2
_RETURN_SECONDS: Final = 5.0
_HELD_RATIO: Final = 0.9
_MEMINFO: Final = Path("/proc/meminfo")


class MemoryHog(Fault):
    """A neighbour that grows, and gives back what others come to need.

    It is the first that the kernel kills, should it come to that.
    """

    kind: Literal["memory_hog"] = "memory_hog"
    available_percent: float = Field(default=50.0, gt=0, le=MOST_PERCENT)
    """Of the memory that is available on the host when it begins."""
    most_mebibytes: int = Field(default=1024, ge=1, le=8192)
    """Never more than so much: to take a gibibyte may last seconds on a virtual machine,
    and to give it back a fifth of one."""
    longest_seconds: float = Field(default=600.0, gt=0, le=86_400)
    """After which it ends by itself."""

    strength: ClassVar[str | None] = "available_percent"

    def require(self, site: Site) -> None:  # noqa: ARG002 - whatever the site
        """A host that says what is available."""
        _available()

    def prepare(self, site: Site) -> dict[str, Any]:  # noqa: ARG002 - whatever the site
        """Return how much, how much is to be left, and its token."""
        available = _available()
        wanted = int(available * self.available_percent / 100)
        wanted = min(wanted, self.most_mebibytes << 20)
        return {
            "token": new_token(),
            "bytes": wanted,
            "leave_bytes": available - int(available * MOST_PERCENT / 100),
            "longest_seconds": self.longest_seconds,
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Start it; it holds all of it when this returns."""
        agents.start(
            record["token"],
            __name__,
            record,
            longest_seconds=record["longest_seconds"],
        )

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Memory that it does not hold."""
        held = sum(_resident(each.pid) for each in started_with(record["token"]))
        if held >= _HELD_RATIO * record["bytes"]:
            return []
        return [f"it holds {held} bytes of {record['bytes']}"]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """End it; the kernel takes a while to have all of it back."""
        hogs = started_with(record["token"])
        for hog in hogs:
            hog.send(signal.SIGKILL)
        for hog in hogs:
            hog.wait_until(None, _RETURN_SECONDS)
        agents.stop(record["token"])

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Its process."""
        return agents.left(record["token"])


def work(settings: dict[str, Any], ready: Callable[[], None]) -> None:
    """Take memory, hold it, and give it back where others need it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    deadline = time.monotonic() + settings["longest_seconds"]
    held: list[mmap.mmap] = []
    left = settings["bytes"]
    while left > 0 and _available() - _CHUNK_BYTES > settings["leave_bytes"]:
        held.append(_taken(min(left, _CHUNK_BYTES)))
        left -= _CHUNK_BYTES
    ready()
    while time.monotonic() < deadline:
        while held and _available() < settings["leave_bytes"]:
            held.pop().close()
        time.sleep(_LOOK_SECONDS)


def _taken(size: int) -> mmap.mmap:
    """Memory that is there, not promised."""
    return mmap.mmap(
        -1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    )


def _available() -> int:
    with contextlib.suppress(OSError):
        for line in _MEMINFO.read_text("ascii").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
    raise FaultRefusedError(
        f"{_MEMINFO} does not say how much memory is available",
        "take memory_limit, which needs no such thing",
    )


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            if name == "VmRSS":
                return int(value.split()[0]) * 1024
    return 0
