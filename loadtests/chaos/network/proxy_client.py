"""The fault proxy from outside: its process and its commands.

ask(control, {"do": "set", "token": "tw1", "effect": {...}})
ask(control, {"do": "clear", "token": "tw1"})
ask(control, {"do": "state"})
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.primitives.process_refs import first_line, why_silent
from loadtests.chaos.site import FaultProxy
from loadtests.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Generator

_SECONDS: Final = 2.0
_START_SECONDS: Final = 15.0
_END_SECONDS: Final = 2.0
_MAX_ANSWER_BYTES: Final = 1 << 20


class ProxyGoneError(LoadError):
    """No proxy listens there: its faults ended with it."""


class ProxyFailedError(LoadError):
    """The proxy did not execute a command, or does not answer."""


@contextlib.contextmanager
def short_name(path: Path) -> Generator[str]:
    """Return a name for a socket within the kernel's limit of 107 bytes, for any folder.

    It is valid for the block.

    Raises:
        OSError: there is no such folder.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def ask(control: Path, command: dict[str, Any]) -> dict[str, Any]:
    """Return the proxy's answer: effects in force, by token; or an `error`.

    Raises:
        ProxyGoneError: it does not run.
        ProxyFailedError: it runs and refused, or gave no answer in two seconds.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_SECONDS)
        try:
            with short_name(control) as name:
                connection.connect(name)
        except (FileNotFoundError, ConnectionRefusedError):
            raise ProxyGoneError(f"no fault proxy listens on {control}") from None
        except OSError as error:
            raise ProxyFailedError(f"the fault proxy at {control}: {error}") from None
        try:
            connection.sendall(json.dumps(command).encode() + b"\n")
            answer: dict[str, Any] = json.loads(_line(connection))
        except (OSError, ValueError) as error:
            raise ProxyFailedError(
                f"the fault proxy at {control} did not answer: {error}"
            ) from None
    if "error" in answer:
        raise ProxyFailedError(f"the fault proxy at {control}: {answer['error']}")
    return answer


def _line(connection: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n") and len(received) < _MAX_ANSWER_BYTES:
        more = connection.recv(65_536)
        if not more:
            break
        received += more
    return bytes(received)


@contextlib.contextmanager
def fault_proxy(*, grpc: str, http: str, seed: int = 0) -> Generator[FaultProxy]:
    """Run a proxy in front of a server while a block lasts.

        with fault_proxy(grpc=triton.grpc, http=triton.http) as proxy:
            client = InferenceServerClient(proxy.grpc)

    Its input is a pipe that only the owner holds, so it ends with the owner, by SIGKILL
    too, and removes its folder.

    Args:
        grpc: host:port of the server's gRPC.
        http: host:port of its HTTP.
        seed: of the losses, resets and jitter that it draws.

    Raises:
        LoadError: it does not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="tritonwatch-proxy-"))
    path = folder / "control"
    process = subprocess.Popen(  # noqa: S603 - no shell, our own arguments
        [
            *(sys.executable, "-P", "-m", "loadtests.chaos.network.proxy"),
            *(f"--control={path}", f"--grpc={grpc}", f"--http={http}"),
            f"--seed={seed}",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Ctrl-C is the runner's to handle, which needs the proxy until the end.
        start_new_session=True,
    )
    try:
        line = first_line(process, _START_SECONDS)
        if not line:
            raise LoadError(
                f"the fault proxy {why_silent(process, _START_SECONDS)}; its standard "
                "error has more"
            )
        at = json.loads(line)
        yield FaultProxy(path, at["grpc"], at["http"], process.pid)
    finally:
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None  # noqa: S101 - for the type checker
            pipe.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
