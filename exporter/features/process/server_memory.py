"""Resident memory of a Triton server on this machine, and of its models' processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporter import catalogue
from exporter.samples import Sample
from exporter.system import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

SERVER: Final = "tritonserver"
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
    """Finds the server's processes in /proc, every ten seconds or when one has ended.

    Only a process called tritonserver that alone listens on the target's port is the
    server: a proxy or a port forwarded from elsewhere is not.
    """

    def __init__(self, address: str, clock: Callable[[], float]) -> None:
        port = address.rpartition(":")[2]
        self._port = (
            int(port) if processes.is_local(address) and port.isdigit() else None
        )
        self._clock = clock
        self._known: list[_Process] = []
        self._models: frozenset[str] = frozenset()
        self._scan_at = float("-inf")

    def samples(self, models: Collection[str]) -> Iterator[Sample]:
        """Bytes by kind of process and model; nothing where the server is not seen."""
        if self._port is None:
            return
        now, names = self._clock(), frozenset(models)
        gone = any(processes.started_at(p.pid) != p.started_at for p in self._known)
        if gone or names != self._models or now >= self._scan_at:
            self._known = list(_found(self._port, names))
            self._models, self._scan_at = names, now + _RESCAN_SECONDS
        totals: dict[tuple[str, str], int] = {}
        for process in self._known:
            resident = processes.resident_bytes(process.pid)
            if resident is not None:
                key = (process.kind, process.model)
                totals[key] = totals.get(key, 0) + resident
        for key, value in sorted(totals.items()):
            yield Sample(catalogue.SERVER_RESIDENT, value, key)


def _found(port: int, models: frozenset[str]) -> Iterator[_Process]:
    servers = processes.listening_on(port, SERVER)
    if len(servers) != 1:
        return
    for pid in processes.family_of(servers):
        started_at = processes.started_at(pid)
        if started_at is None:
            continue
        if pid in servers:
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
