"""The standard process metrics, of this process."""

from __future__ import annotations

import os
import platform
import resource
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from exporter import catalogue
from exporter.access.collector_base import Access, CollectorSettings
from exporter.features.process.server_memory import ServerMemory
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessSettings(CollectorSettings):
    """CPU, memory and descriptors of this process, and memory of the server's.

    The latter where the server runs on this machine and its processes can be seen.
    """

    kind: Literal["process"] = "process"

    def build(self, access: Access) -> ProcessCollector:
        """The collector; it asks the server nothing."""
        return ProcessCollector(access)


class ProcessCollector:
    """Reads /proc."""

    def __init__(self, access: Access) -> None:
        self._board = access.board
        self._memory = ServerMemory(access.grpc.address, access.clock)
        # To look it up leaves cycles behind, at every look.
        self._build = (version("tritonwatch"), platform.python_version())
        self._start_seconds = _start_time_seconds()

    def collect(self) -> Sequence[Sample]:
        """Samples of this instant."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        inventory = self._board.current
        models = {entry.name for entry in inventory.index}
        return (
            Sample(catalogue.BUILD_INFO, 1, self._build),
            Sample(catalogue.PROCESS_CPU, usage.ru_utime + usage.ru_stime),
            Sample(catalogue.PROCESS_RESIDENT, pages * _PAGE_BYTES),
            Sample(catalogue.PROCESS_START, self._start_seconds),
            Sample(catalogue.PROCESS_FDS, len(os.listdir("/proc/self/fd"))),  # noqa: PTH208
            Sample(
                catalogue.PROCESS_MAX_FDS,
                resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            ),
            *self._memory.samples(models | {name for name, _ in inventory.models}),
        )


def _start_time_seconds() -> float:
    # The command's name may hold spaces and brackets; the fields begin after the last.
    stat = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
    boot = next(
        line
        for line in Path("/proc/stat").read_text("ascii").splitlines()
        if line.startswith("btime ")
    )
    return float(boot.split()[1]) + int(stat[19]) / _TICKS
