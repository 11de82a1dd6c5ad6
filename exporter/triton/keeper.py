"""Keep one Triton server: run it, outlive both it and its owner, leave nothing behind.

Run as a script, with the interpreter of the owner:

    keeper.py OWNER_PID TOKEN FOLDER LOG [NAME=VALUE ...] -- COMMAND [ARGUMENT ...]

The server's shared memory regions are named TOKEN followed by anything. It prints the server's pid and waits for the first of two ends: the server's, or the
owner's (however it died, SIGKILL included). Then it kills what is left of the server,
reaps it, removes its shared memory, and ends with the server's exit code (128 + N for
signal N). When the owner is gone it removes FOLDER as well.

It is the parent of the server, and takes over orphaned backend processes as child
subreaper, because in a container process 1 often reaps nobody.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

TOKEN_VARIABLE = "TRITONWATCH_EMBEDDED"  # noqa: S105 - names a process, opens nothing
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory lives
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CLEAN_UP_SECONDS = 5.0
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def members(token: str) -> list[int]:
    """Pids of every live process started with this token in its environment."""
    entry = f"{TOKEN_VARIABLE}={token}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        # A zombie's environment is empty; a process may end while it is inspected.
        with contextlib.suppress(OSError):
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def remove_shared_memory(prefix: str) -> None:
    """Remove the regions that a killed Python backend leaves in /dev/shm."""
    for region in _SHARED_MEMORY.glob(f"{prefix}*"):
        region.unlink(missing_ok=True)


def _start(command: list[str], environment: dict[str, str], log: str) -> int:
    """Start the server in a session of its own, with its output in the log; its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        # The keeper has one thread, so the death of the parent is the keeper's own.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execve(command[0], command, environment)  # noqa: S606 - no shell wanted
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _end(server: int, token: str) -> int:
    """Kill and reap all remaining processes; return the server's exit code."""
    code = 1
    deadline = time.monotonic() + _CLEAN_UP_SECONDS
    while time.monotonic() < deadline:
        left = members(token)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            if not left:
                break
            pid, status = 0, 0
        if pid == server:
            code = os.waitstatus_to_exitcode(status)
        elif pid == 0:
            time.sleep(0.005)
    return code if code >= 0 else 128 - code


def main(arguments: list[str]) -> int:
    """Run the server to its own end or its owner's; the exit code to end with."""
    owner, token, folder, log = arguments[:4]
    split = arguments.index("--")
    settings = dict(pair.split("=", 1) for pair in arguments[4:split])
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment = {**inherited, **settings, TOKEN_VARIABLE: token}
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    owner_end = os.pidfd_open(int(owner))
    if os.getppid() != int(owner):
        return 1
    server = _start(arguments[split + 1 :], environment, log)
    server_end = os.pidfd_open(server)
    with contextlib.suppress(BrokenPipeError):
        print(server, flush=True)  # noqa: T201 - the protocol with the owner
    ended, _, _ = select.select([owner_end, server_end], [], [])
    if owner_end in ended:
        # Members are found by what exec gave them; this one may not be there yet.
        os.kill(server, signal.SIGKILL)
    code = _end(server, token)
    remove_shared_memory(token)
    if os.getppid() != int(owner):
        shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
