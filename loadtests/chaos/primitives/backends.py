"""Processes and shared-memory regions of a Triton on this host.

The arguments of a process of the Python backend ("stub") identify its owner: the
model's file, its region in /dev/shm, and the pid of the server that started it. In a
container that pid is another one than on the host, so that servers are known by it
together with the namespace in which it is theirs.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from exporter.network.addresses import LOCAL, canonical, resolve
from exporter.system.processes import arguments_of, listening_on
from loadtests.chaos.primitives.process_refs import ProcessRef

if TYPE_CHECKING:
    from collections.abc import Iterable

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory lives
_STUB: Final = "triton_python_backend_stub"
_MODEL_FILE, _REGION, _SERVER = 1, 2, 5
_PID: Final = re.compile(r"\d{1,10}")
_END_SECONDS: Final = 0.5


class Known(NamedTuple):
    """A pid with the namespace that it is of."""

    namespace: str
    """Namespace of its pids, as in /proc/PID/ns/pid; empty where it is not readable."""
    pid: int

    @classmethod
    def of(cls, pid: int) -> Self:
        """Return the process with this pid on the host; the pid alone where it has ended."""
        inner = pid
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
            names = [x for x in status.splitlines() if x.startswith("NSpid:")]
            # From the host's namespace to its own.
            inner = int(names[0].split()[-1]) if names else pid
        return cls(_namespace(pid), inner)


@dataclass(frozen=True, slots=True)
class Stub:
    """One process of the Python backend: an instance of a model."""

    process: ProcessRef
    model: str
    region: str
    """Its file in /dev/shm, which a killed server leaves behind."""
    server: Known

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Return the stub with this pid; None where it is no stub."""
        process = ProcessRef.of(pid)
        arguments = arguments_of(pid)
        if process is None or len(arguments) <= _SERVER:
            return None
        if not arguments[0].endswith(_STUB) or not _PID.fullmatch(arguments[_SERVER]):
            return None
        file = Path(arguments[_MODEL_FILE])
        return cls(
            process,
            file.parent.parent.name,  # REPOSITORY/MODEL/VERSION/model.py
            arguments[_REGION],
            Known(_namespace(pid), int(arguments[_SERVER])),
        )


def _namespace(pid: int) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    return ""


def stubs(server: Known) -> list[Stub]:
    """Return every live stub that this server started, orphans included."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            stub = Stub.of(int(folder.name))
            if stub is not None and stub.server == server:
                found.append(stub)
    return sorted(found, key=lambda stub: stub.process.pid)


def stubs_of(server: ProcessRef, model: str | None = None) -> list[ProcessRef]:
    """Return the live stubs of a server, all or one model's."""
    return [
        stub.process
        for stub in stubs(Known.of(server.pid))
        if model in {None, stub.model} and _since(server, stub.process)
    ]


@dataclass(frozen=True, slots=True)
class Belongings:
    """The processes and regions of a server that its sudden death would leave behind."""

    server: ProcessRef
    known: Known
    stubs: tuple[ProcessRef, ...]
    regions: tuple[str, ...]
    """Names in /dev/shm."""

    @classmethod
    def of(cls, server: ProcessRef) -> Self:
        """Return its present processes and files."""
        known = Known.of(server.pid)
        found = [s for s in stubs(known) if _since(server, s.process)]
        return cls(
            server,
            known,
            tuple(stub.process for stub in found),
            tuple(stub.region for stub in found),
        )

    @classmethod
    def from_record(cls, record: Any) -> Self:
        """Restore what `to_record` returned."""
        return cls(
            ProcessRef.from_record(record["server"]),
            Known(*record["known"]),
            tuple(ProcessRef.from_record(entry) for entry in record["stubs"]),
            tuple(str(name) for name in record["regions"]),
        )

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON values, for a journal."""
        return {
            "server": self.server.to_record(),
            "known": list(self.known),
            "stubs": [stub.to_record() for stub in self.stubs],
            "regions": list(self.regions),
        }

    def left(self) -> list[str]:
        """Return what outlived the server, in sentences; empty while it lives."""
        if self.server.alive:
            return []
        orphans, regions = self._orphans()
        return [f"backend process {orphan.pid} is an orphan" for orphan in orphans] + [
            f"shared memory {file} is left"
            for file in _shared(regions)
            if file.exists()
        ]

    def sweep(self) -> None:
        """Remove what outlived the server; do nothing while the server lives."""
        if self.server.alive:
            return
        orphans, regions = self._orphans()
        for orphan in orphans:
            orphan.kill(_END_SECONDS)
        for file in _shared(regions):
            file.unlink(missing_ok=True)

    def _orphans(self) -> tuple[list[ProcessRef], set[str]]:
        """Return live stubs without a server, including those started just now."""
        later: list[Stub] = []
        # A pid that is used again may be another server's, with stubs of its own; so may
        # a container's namespace, whose name is the next one's as soon as it is free.
        here = self.known.namespace == _namespace(os.getpid())
        if here and ProcessRef.of(self.server.pid) in {None, self.server}:
            later = [s for s in stubs(self.known) if _since(self.server, s.process)]
        processes = {stub for stub in self.stubs if stub.alive}
        processes.update(stub.process for stub in later)
        # In a container's namespace the same names are other files.
        known = self.regions if here or not self.known.namespace else ()
        regions = {*known, *(stub.region for stub in later)}
        return sorted(processes, key=lambda process: process.pid), regions


def _shared(regions: Iterable[str]) -> list[Path]:
    """The files of these regions, named as for shm_open(3).

    The names come from the processes themselves: a name with a path is ignored.
    """
    names = {region.removeprefix("/") for region in regions}
    return [
        SHARED_MEMORY / name
        for name in sorted(names - {"", ".", ".."})
        if "/" not in name
    ]


def _since(server: ProcessRef, process: ProcessRef) -> bool:
    return process.start_ticks >= server.start_ticks


def listener(address: str, name: str | None = None) -> ProcessRef | None:
    """Return the process of this host that listens on host:port, if it is called `name`.

    None if there is none, if it is not visible, or if the address is another machine's:
    what happens to have the same port here is not meant.
    """
    host, _, port = address.rpartition(":")
    try:
        hosts = resolve(host.strip("[]"))
    except (OSError, UnicodeError):
        return None
    if LOCAL not in map(canonical, hosts):
        return None
    meant = {ipaddress.ip_address(each.partition("%")[0]) for each in hosts}
    if any(each.is_unspecified for each in meant):
        meant |= {ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")}
    found = listening_on(int(port), name, meant)
    return ProcessRef.of(min(found)) if found else None
