"""Tell a running fault proxy what its wires do: one command, one answer.

ask(control, {"do": "set", "token": "tw1", "effect": {...}, "protocols": ["grpc"]})
ask(control, {"do": "clear", "token": "tw1"})
ask(control, {"do": "state"})
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import TYPE_CHECKING, Any, Final

from loadtests.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_SECONDS: Final = 2.0
_MAX_ANSWER_BYTES: Final = 1 << 20


class ProxyGoneError(LoadError):
    """No proxy listens there: its faults went with it."""


class ProxyFailedError(LoadError):
    """The proxy did not do what it was told, or does not answer."""


@contextlib.contextmanager
def short_name(path: Path) -> Generator[str]:
    """A name for a socket that the kernel takes (107 bytes), however long its folder's is.

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
    """The proxy's answer: faults by token, and what its wires hold.

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
                f"the fault proxy at {control} gave no answer: {error}"
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
