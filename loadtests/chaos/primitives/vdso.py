"""The wall clock of one running process, moved.

A process of Linux reads the clock in the vDSO, code that the kernel maps into each
process. /proc/PID/mem may write to that page, as debuggers do to set breakpoints, and the
kernel then gives the process a copy of its own. There the functions that read the clock
are replaced by ones that ask the kernel and add a number of seconds to its wall clock.
Monotonic clocks, and every other process, stay as they are.

What calls the kernel past the vDSO is not deceived; CPython, glibc and Go do not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from loadtests.chaos.primitives.processes import ProcessRef

if TYPE_CHECKING:
    from collections.abc import Generator

MACHINE: Final = "x86_64"
_STOP_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.001
_ADD: Final = bytes.fromhex("48b9")  # mov rcx, the 8 bytes that follow


class VdsoError(Exception):
    """The process has no vDSO that is understood, or may not be written to."""


def routines(seconds: int) -> dict[str, bytes]:
    """Machine code (x86-64, System V) of each function that reads the wall clock.

    The system call's numbers are those of the kernel's syscall_64.tbl. A system call
    clobbers rax, rcx and r11 only, and so do these.
    """
    offset = _ADD + struct.pack("<q", seconds)
    return {
        "__vdso_clock_gettime": b"".join(
            (
                bytes.fromhex("b8e4000000 0f05"),  # mov eax, 228; syscall
                bytes.fromhex("85c0 7516"),  # test eax, eax; jnz end
                bytes.fromhex("85ff 7405"),  # test edi, edi; jz add: CLOCK_REALTIME
                bytes.fromhex("83ff05 750d"),  # cmp edi, 5; jne end: ..._COARSE
                offset,
                bytes.fromhex("48010e"),  # add: add [rsi], rcx
                b"\xc3",  # end: ret
            )
        ),
        "__vdso_gettimeofday": b"".join(
            (
                bytes.fromhex("b860000000 0f05"),  # mov eax, 96; syscall
                bytes.fromhex("85c0 7512"),  # test eax, eax; jnz end
                bytes.fromhex("4885ff 740d"),  # test rdi, rdi; jz end
                offset,
                bytes.fromhex("48010f"),  # add [rdi], rcx
                b"\xc3",
            )
        ),
        "__vdso_time": b"".join(
            (
                bytes.fromhex("b8c9000000 0f05"),  # mov eax, 201; syscall
                offset,
                bytes.fromhex("4801c8"),  # add rax, rcx
                bytes.fromhex("4885ff 7403"),  # test rdi, rdi; jz end
                bytes.fromhex("488907"),  # mov [rdi], rax
                b"\xc3",
            )
        ),
    }


@dataclass(frozen=True, slots=True)
class Patch:
    """Bytes of a process at an address, before and after."""

    address: int
    before: bytes
    after: bytes

    @classmethod
    def from_record(cls, record: Any) -> Self:
        """What `to_record` made."""
        address, before, after = record
        return cls(int(address), bytes.fromhex(before), bytes.fromhex(after))

    def to_record(self) -> list[Any]:
        """For a journal."""
        return [self.address, self.before.hex(), self.after.hex()]


def patches(process: ProcessRef, seconds: int) -> list[Patch]:
    """What moves its wall clock by so many seconds; nothing is written yet.

    Raises:
        VdsoError: there is no such thing for this process.
    """
    start, end = _mapped(process)
    try:
        with memory(process, os.O_RDWR) as descriptor:
            image = os.pread(descriptor, end - start, start)
    except OSError as error:
        raise VdsoError(
            f"the memory of process {process.pid} may not be written to: "
            f"{error.strerror}"
        ) from None
    symbols = _symbols(image)
    found = []
    for name, after in routines(seconds).items():
        place, size = symbols.get(name, (0, 0))
        if size < len(after):
            raise VdsoError(
                f"{name} has {size} bytes in this kernel's vDSO; {len(after)} are needed"
            )
        before = image[place : place + len(after)]
        found.append(Patch(start + place, before, after))
    return found


def writable() -> bool:
    """Whether this kernel lets a process's vDSO be written to, and says where threads are.

    Tried on this process, with the byte that is there already.
    """
    process = ProcessRef.of(os.getpid())
    if process is None or not Path("/proc/self/syscall").exists():
        return False
    try:
        start, _ = _mapped(process)
        with memory(process, os.O_RDWR) as descriptor:
            return os.pwrite(descriptor, os.pread(descriptor, 1, start), start) == 1
    except (OSError, VdsoError):
        return False


def has(process: ProcessRef, patch: Patch, wanted: bytes) -> bool:
    """Whether the process has these bytes there."""
    with memory(process, os.O_RDONLY) as descriptor:
        return os.pread(descriptor, len(wanted), patch.address) == wanted


@contextlib.contextmanager
def memory(process: ProcessRef, flags: int) -> Generator[int]:
    """A descriptor of its memory.

    Raises:
        OSError: it is gone (ProcessLookupError), or not ours.
    """
    try:
        descriptor = os.open(f"/proc/{process.pid}/mem", flags | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ProcessLookupError(f"process {process.pid} is gone") from None
    try:
        # It is opened before the look, so that both mean the same process.
        if not process.alive:
            raise ProcessLookupError(f"process {process.pid} is gone")
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def held(process: ProcessRef, places: list[Patch]) -> Generator[None]:
    """Stop the process while no thread of it is within these bytes, then let it go on.

    Raises:
        VdsoError: a thread stayed there, or one does not stop.
    """
    deadline = time.monotonic() + _STOP_SECONDS
    try:
        while True:
            process.send(signal.SIGSTOP)
            if _outside(process, places):
                yield
                return
            if time.monotonic() > deadline:
                raise VdsoError(
                    f"process {process.pid} does not stop reading its clock"
                )
            process.send(signal.SIGCONT)
            time.sleep(_POLL_SECONDS)
    finally:
        process.send(signal.SIGCONT)


def _outside(process: ProcessRef, places: list[Patch]) -> bool:
    """Whether all threads are stopped, none of them within the bytes."""
    deadline = time.monotonic() + _STOP_SECONDS
    while True:
        counters = _program_counters(process)
        if counters is not None:
            break
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
        # Somebody who had stopped it, too, may just have let it go on.
        process.send(signal.SIGSTOP)
    return not any(
        place.address
        <= counter
        < place.address + max(len(place.before), len(place.after))
        for counter in counters
        for place in places
    )


def _program_counters(process: ProcessRef) -> list[int] | None:
    """Where its threads stand, None while one still runs; see proc(5), syscall."""
    found = []
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            told = (task / "syscall").read_text("ascii").split()
            status = (task / "stat").read_text("utf-8", "replace").rpartition(")")[2]
            if told[0] == "running" or status.split()[0] not in {"T", "t"}:
                return None
            found.append(int(told[-1], 16))
    return found


def _mapped(process: ProcessRef) -> tuple[int, int]:
    try:
        lines = Path(f"/proc/{process.pid}/maps").read_text("utf-8").splitlines()
    except OSError as error:
        raise VdsoError(
            f"the memory of process {process.pid} may not be seen: {error.strerror}"
        ) from None
    for line in lines:
        if line.endswith("[vdso]"):
            start, _, end = line.split()[0].partition("-")
            return int(start, 16), int(end, 16)
    raise VdsoError(f"process {process.pid} has no vDSO")


def _symbols(image: bytes) -> dict[str, tuple[int, int]]:
    """Offset and size of each dynamic symbol: ELF-64, whose addresses begin at 0."""
    try:
        headers, count = *struct.unpack_from("<Q", image, 32), image[56]
        dynamic: dict[int, int] = {}
        for number in range(count):
            kind, _, offset, _, _, size = struct.unpack_from(
                "<IIQQQQ", image, headers + 56 * number
            )
            if kind == 2:  # noqa: PLR2004 - PT_DYNAMIC
                dynamic = dict(struct.iter_unpack("<QQ", image[offset : offset + size]))
        strings, symbols = dynamic[5], dynamic[6]  # DT_STRTAB, DT_SYMTAB
        found = {}
        for name, _, _, _, value, size in struct.iter_unpack(
            "<IBBHQQ", image[symbols : strings - (strings - symbols) % 24]
        ):
            text = image[strings + name : image.index(b"\0", strings + name)]
            found[text.decode("ascii")] = (int(value), int(size))
    except (struct.error, LookupError, ValueError) as error:
        raise VdsoError(f"this kernel's vDSO is not understood: {error}") from None
    return found
