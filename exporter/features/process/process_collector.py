"""The standard process metrics, of this process."""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from exporter import catalogue
from exporter.access.collector_base import Access, CollectorSettings
from exporter.samples import Sample
from exporter.system import processes
from exporter.system.local_server import LocalServer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from exporter.system.local_server import ServerProcess


_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessSettings(CollectorSettings):
    """CPU, memory and file descriptors of this process, and memory of the server.

    The latter only if the server runs on this machine and its processes are visible.
    """

    kind: Literal["process"] = "process"
    needs_triton: ClassVar[bool] = False

    def build(self, access: Access) -> ProcessCollector:
        """The collector; it asks the server nothing."""
        return ProcessCollector(access)


class ProcessCollector:
    """Reads /proc."""

    def __init__(self, access: Access) -> None:
        self._board = access.board
        self._memory = ServerMemory(access.server.address, access.clock)
        # Looked up once: every lookup leaves reference cycles behind.
        self._build = (version("tritonwatch"), platform.python_version())
        self._start_seconds = _start_time_seconds()

    def collect(self) -> Sequence[Sample]:
        """Samples of this instant."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        resident = processes.resident_bytes(os.getpid()) or 0
        inventory = self._board.current
        models = {entry.name for entry in inventory.index}
        return (
            Sample(catalogue.BUILD_INFO, 1, self._build),
            Sample(catalogue.PROCESS_CPU, usage.ru_utime + usage.ru_stime),
            Sample(catalogue.PROCESS_RESIDENT, resident),
            Sample(catalogue.PROCESS_START, self._start_seconds),
            Sample(catalogue.PROCESS_FDS, len(os.listdir("/proc/self/fd"))),  # noqa: PTH208
            Sample(
                catalogue.PROCESS_MAX_FDS,
                resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            ),
            *self._memory.samples(models | {name for name, _ in inventory.models}),
        )


def _start_time_seconds() -> float:
    boot = next(
        line
        for line in Path("/proc/stat").read_text("ascii").splitlines()
        if line.startswith("btime ")
    )
    return float(boot.split()[1]) + (processes.started_at(os.getpid()) or 0) / _TICKS


_STUB: Final = "triton_python_backend_stub"
_RESCAN_SECONDS: Final = 10.0
_FEWEST: Final = 3


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    started_at: int
    kind: str
    """Value of the label `process`."""
    model: str


class ServerMemory:
    """Finds the server's processes in /proc, every ten seconds or when one has ended."""

    def __init__(self, address: str, clock: Callable[[], float]) -> None:
        self._server = LocalServer(address)
        self._clock = clock
        self._known: list[_Process] = []
        self._unnamed: frozenset[_Process] = frozenset()
        self._models: frozenset[str] = frozenset()
        self._scan_at = float("-inf")

    def samples(self, models: Collection[str]) -> Iterator[Sample]:
        """Bytes by kind of process and model; nothing where the server is not seen."""
        now, names = self._clock(), frozenset(models)
        gone = any(processes.started_at(p.pid) != p.started_at for p in self._known)
        if gone or names != self._models or now >= self._scan_at:
            self._models, self._scan_at = names, now + _RESCAN_SECONDS
            self._known = self._scan(names)
        totals: dict[tuple[str, str], int] = {}
        for process in self._known:
            resident = processes.resident_bytes(process.pid)
            if resident is not None:
                key = (process.kind, process.model)
                totals[key] = totals.get(key, 0) + resident
        for key, value in sorted(totals.items()):
            yield Sample(catalogue.SERVER_RESIDENT, value, key)

    def _scan(self, models: frozenset[str]) -> list[_Process]:
        # A backend's process starts as a copy of the server, then is a shell, then the
        # stub: processes without a name are read a second time.
        found = set(_found(self._server.process(), models))
        unnamed = frozenset(p for p in found if p.kind == "other")
        new = unnamed - self._unnamed
        if new:
            self._scan_at = float("-inf")
        self._unnamed = unnamed
        return list(found - new)


def _found(server: ServerProcess | None, models: frozenset[str]) -> Iterator[_Process]:
    if server is None:
        return
    for pid in processes.family_of([server.pid]):
        started_at = processes.started_at(pid)
        if started_at is None:
            continue
        if pid == server.pid:
            yield _Process(pid, started_at, "server", "")
            continue
        model = model_of(processes.arguments_of(pid), models)
        if model is None:
            yield _Process(pid, started_at, "other", "")
        else:
            yield _Process(pid, started_at, "backend", model)


def model_of(arguments: list[str], models: Collection[str]) -> str | None:
    """The model of a Python backend's process; None where its command line leaves doubt.

    Among its arguments are the path MODEL/VERSION/model.py, or a copy of it in a folder
    with another name, and the instance MODEL_0 or MODEL_0_0.
    """
    if len(arguments) < _FEWEST or arguments[0].rpartition("/")[2] != _STUB:
        return None
    possible = set()
    for argument in arguments[2:]:
        instance = argument
        for _ in range(2):
            instance, _, number = instance.rpartition("_")
            if not number.isdigit():
                break
            possible.add(instance)
    folder = arguments[1].split("/")[-3:][0]
    named = {folder} if folder in possible else possible
    found = named & set(models)
    return found.pop() if len(found) == 1 else None
