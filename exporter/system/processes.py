"""Processes of this machine, read from /proc: listeners, descendants, memory."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

LOOPBACK: Final = frozenset(
    {"localhost", "127.0.0.1", "::1", "[::1]", "0.0.0.0"}  # noqa: S104
)
_PROC: Final = Path("/proc")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_LISTENING: Final = "0A"
_PARENT, _STARTED = 1, 19  # fields of /proc/PID/stat after the name


def is_local(address: str) -> bool:
    """Return whether "host:port" is an address of this machine's loopback."""
    return address.rpartition(":")[0].lower() in LOOPBACK


def listening_on(
    port: int, name: str | None = None, hosts: Collection[IPAddress] | None = None
) -> set[int]:
    """The processes that listen on a TCP port, of those called `name`, or of all.

    With `hosts` only those that accept connections to one of these addresses. Empty if
    there are none, or if this process may not see them.
    """
    sockets = _sockets(port, hosts)
    if not sockets:
        return set()
    return {
        pid
        for pid in _pids()
        if (name is None or name_of(pid) == name) and _holds(pid, sockets)
    }


def family_of(pids: Iterable[int]) -> set[int]:
    """The processes and all their descendants."""
    family = set(pids)
    parents = {pid: parent_of(pid) for pid in _pids()}
    while new := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= new
    return family


def parent_of(pid: int) -> int | None:
    """Return its parent process; None where it has ended."""
    fields = stat_of(pid)
    return None if fields is None else int(fields[_PARENT])


def started_at(pid: int) -> int | None:
    """Clock ticks from boot to the process's start: with the pid it is an identity."""
    fields = stat_of(pid)
    return None if fields is None else int(fields[_STARTED])


def name_of(pid: int) -> str | None:
    """The first 15 bytes of the name of its program."""
    with contextlib.suppress(OSError):
        return (_PROC / str(pid) / "comm").read_text("utf-8", "replace").rstrip("\n")
    return None


def arguments_of(pid: int) -> list[str]:
    """Return its command line; empty where it has ended or is a kernel thread."""
    with contextlib.suppress(OSError):
        line = (_PROC / str(pid) / "cmdline").read_bytes()
        return [part.decode("utf-8", "replace") for part in line.split(b"\0")[:-1]]
    return []


def resident_bytes(pid: int) -> int | None:
    """Return its resident memory, shared pages included; None where it has ended."""
    with contextlib.suppress(OSError):
        pages = (_PROC / str(pid) / "statm").read_text("ascii").split()[1]
        return int(pages) * _PAGE_BYTES
    return None


def stat_of(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name; None where it has ended."""
    with contextlib.suppress(OSError):
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
        # The name in brackets may hold anything, spaces and brackets too.
        return text.rpartition(")")[2].split()
    return None


def _sockets(port: int, hosts: Collection[IPAddress] | None) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        with (
            contextlib.suppress(OSError),
            (_PROC / "net" / table).open(encoding="ascii") as lines,
        ):
            next(lines)
            for line in lines:
                parts = line.split()
                local, state, inode = parts[1], parts[3], parts[9]
                # Listening sockets come first (proc_net_tcp.rst); a flood adds to the rest.
                if state != _LISTENING:
                    break
                host, _, at = local.rpartition(":")
                if int(at, 16) == port and (hosts is None or _accepts(host, hosts)):
                    found.add(f"socket:[{inode}]")
    return found


def _accepts(bound: str, hosts: Collection[IPAddress]) -> bool:
    """Return whether a socket bound to this address, as /proc writes it, is one of `hosts`."""
    words = (bound[start : start + 8] for start in range(0, len(bound), 8))
    packed = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
    address = ipaddress.ip_address(packed)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_unspecified or address in hosts


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir(_PROC) if entry.isdigit()]  # noqa: PTH208


def _holds(pid: int, sockets: set[str]) -> bool:
    with contextlib.suppress(OSError):
        for link in (_PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()) in sockets:
                    return True
    return False
