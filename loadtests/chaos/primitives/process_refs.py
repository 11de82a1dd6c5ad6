"""Processes as a journal can name them, and the processes that keep faults up.

A reference is safe against pids that are used again. A process of a fault is found by its
token alone, which the record has before the process exists.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from exporter.system.processes import stat_of
from loadtests.errors import FaultFailedError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

TOKEN_VARIABLE: Final = "TRITONWATCH_CHAOS"  # noqa: S105 - names a process, opens nothing
_POLL_SECONDS: Final = 0.005
_STOP_SECONDS: Final = 0.5
_PAUSE_SECONDS: Final = 0.02
_STATE, _START = 0, 19
"""Places in /proc/PID/stat after the name: proc(5) counts from pid as field 1."""
_PROGRAM: Final = "loadtests.chaos.faults.fault_program"
READY: Final = "ready"
FAILED: Final = "failed: "
"""First words of its output."""
_READY_SECONDS: Final = 15.0
_END_SECONDS: Final = 5.0
"""Time for a process to end; the kernel takes a while to have its memory back."""


@dataclass(frozen=True, slots=True)
class ProcessRef:
    """One process of this host; its start time distinguishes it from a later one."""

    pid: int
    start_ticks: int
    """Start time from /proc/PID/stat: clock ticks since boot."""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has this pid now; None where none has."""
        fields = stat_of(pid)
        return None if fields is None else cls(pid, int(fields[_START]))

    @classmethod
    def from_record(cls, record: Any) -> Self:
        """Restore what `to_record` returned."""
        pid, start_ticks = record
        return cls(int(pid), int(start_ticks))

    def to_record(self) -> list[int]:
        """Return it as JSON values, for a journal."""
        return [self.pid, self.start_ticks]

    @property
    def alive(self) -> bool:
        """True if it exists and is no zombie."""
        return self.state not in {None, "Z", "X"}

    @property
    def state(self) -> str | None:
        """Letter of its state in proc(5), like "T" for stopped; None where it has ended."""
        fields = stat_of(self.pid)
        if fields is None or int(fields[_START]) != self.start_ticks:
            return None
        return fields[_STATE]

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; return False where the process has ended.

        Raises:
            PermissionError: it is another user's.
        """
        with self._handle() as handle:
            if handle is None or not self.alive:
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
                return True
        return False

    def kill(self, timeout_seconds: float) -> bool:
        """Send SIGKILL; return whether all threads, and so all sockets, ended in time.

        Raises:
            PermissionError: it is another user's.
        """
        with self._handle() as handle:
            if handle is None or self.state is None:
                return True
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            # Its first thread may be a zombie while others still end.
            return bool(select.select([handle], [], [], timeout_seconds)[0])

    @contextlib.contextmanager
    def _handle(self) -> Generator[int | None]:
        """Open a handle of this pid before its state is read, so that both are of one process."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            yield None
            return
        try:
            yield handle
        finally:
            os.close(handle)

    def wait_until(self, states: str | None, timeout_seconds: float) -> bool:
        """Return whether it reached one of these states, or ended (None), in time."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            state = self.state
            gone = state in {None, "Z", "X"}
            if gone if states is None else (state or "-") in states:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)


def new_token() -> str:
    """Return a token for the processes and files of a fault, by which undo finds them."""
    return f"tw{secrets.token_hex(5)}"


def started_with(token: str) -> list[ProcessRef]:
    """Every live process that was started with this token in its environment.

    A fault that starts a process decides its token before, so that the undo record is
    on disk before there is a pid.
    """
    entry = f"{TOKEN_VARIABLE}={token}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        # A zombie's environment is empty; a process may end while it is inspected.
        with contextlib.suppress(OSError):
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                reference = ProcessRef.of(int(folder.name))
                if reference is not None:
                    found.append(reference)
    return found


def end_started_with(token: str, seconds: float, checks: int = 1) -> list[str]:
    """Kill every process with this token; return those that stay, in sentences.

    Args:
        token: in their environment.
        seconds: for all of them to end.
        checks: number of consecutive checks that must find none; a process that starts a
            program shows no environment for a moment.
    """
    deadline = time.monotonic() + seconds
    without = 0
    while without < checks:
        found = [p for p in started_with(token) if p.pid != os.getpid()]
        for process in found:
            try:
                process.kill(max(deadline - time.monotonic(), 0.0))
            except PermissionError:
                pid = process.pid
                return [
                    f"process {pid} is another user's; as that user: kill -KILL {pid}"
                ]
        if found and time.monotonic() > deadline:
            return [
                f"process {process.pid} does not end; kill -KILL {process.pid}"
                for process in found
            ]
        without = 0 if found else without + 1
        if without < checks:
            time.sleep(_PAUSE_SECONDS)
    return []


def stop(processes: Sequence[ProcessRef]) -> None:
    """Stop them in this order, and wait for each; skip those that have ended."""
    for process in processes:
        process.send(signal.SIGSTOP)
    for process in processes:
        process.wait_until("Tt", _STOP_SECONDS)


def resume(processes: Sequence[ProcessRef]) -> None:
    """Resume them in this order, and wait until they run.

    Raises:
        FaultFailedError: one does not run; the message has the command that helps.
    """
    for process in processes:
        process.send(signal.SIGCONT)
    for process in processes:
        if process.alive and not process.wait_until("RSDI", _STOP_SECONDS):
            raise FaultFailedError(
                f"process {process.pid} is still stopped; kill -CONT {process.pid}"
            )


def is_stopped(process: ProcessRef) -> bool:
    """Return whether it is there and stopped."""
    return process.state in {"T", "t"}


def first_line(process: subprocess.Popen[str], seconds: float) -> str:
    """Return the first line of a process's output; empty where none comes in time."""
    assert process.stdout is not None  # noqa: S101 - for the type checker
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline().strip() if ready else ""


def why_silent(process: subprocess.Popen[str], seconds: float) -> str:
    """Return why `first_line` found none within these seconds."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return f"ended with status {process.wait(_END_SECONDS)}"
    return f"was not ready within {seconds:g} s"


def start_program(
    token: str, kind: str, record: dict[str, Any], longest_seconds: float
) -> None:
    """Start it, and wait until it reports that the fault is in effect.

    Args:
        token: by which it is found, of the fault's record.
        kind: of the fault.
        record: handed to its `work`; plain JSON.
        longest_seconds: after which it ends in any case.

    Raises:
        FaultFailedError: it could not bring the fault about.
    """
    starter = ProcessRef.of(os.getpid())
    task = {
        "kind": kind,
        "record": record,
        "starter": None if starter is None else starter.to_record(),
        "longest_seconds": longest_seconds,
    }
    process = subprocess.Popen(  # noqa: S603 - no shell, our own arguments
        [sys.executable, "-P", "-m", _PROGRAM, json.dumps(task)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, TOKEN_VARIABLE: token},
        start_new_session=True,
    )
    # It is reaped as soon as it ends.
    threading.Thread(target=process.wait, daemon=True).start()
    answer = _first_word(process)
    if answer != READY:
        stop_program(token)
        raise FaultFailedError(answer.removeprefix(FAILED) or f"{kind} printed nothing")


def _first_word(process: subprocess.Popen[str]) -> str:
    """Return the first word of its output, or the last line of its error."""
    assert process.stdout is not None  # noqa: S101 - for the type checker
    with process.stdout as output:
        deadline = time.monotonic() + _READY_SECONDS
        last = ""
        while select.select([output], [], [], max(deadline - time.monotonic(), 0))[0]:
            line = output.readline()
            if not line or line.startswith((READY, FAILED)):
                return line.strip() or last
            last = line.strip() or last
    return f"was not in effect after {_READY_SECONDS:g} s"


def stop_program(token: str) -> None:
    """End every process with this token.

    Raises:
        FaultFailedError: one does not end, or is another user's.
    """
    problems = end_started_with(token, _END_SECONDS)
    if problems:
        raise FaultFailedError("; ".join(problems))
