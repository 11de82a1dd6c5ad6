"""The fault proxy as a process that never outlives its owner."""

from __future__ import annotations

import json
import selectors
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from loadtests.chaos.site import ProxyControl
from loadtests.errors import LoadError

if TYPE_CHECKING:
    from types import TracebackType

_START_SECONDS: Final = 15.0
_END_SECONDS: Final = 2.0


class FaultProxy:
    """A proxy in front of a server, as a context manager.

        with FaultProxy(grpc=triton.grpc, http=triton.http) as proxy:
            client = InferenceServerClient(proxy.control.grpc)

    Its input is a pipe that only the owner holds, so it ends with the owner, by SIGKILL
    too, and removes its folder.

    Args:
        grpc: host:port of the server's gRPC.
        http: host:port of its HTTP.
        seed: of the losses, resets and jitter that it draws.
    """

    def __init__(self, *, grpc: str, http: str, seed: int = 0) -> None:
        self._arguments = [f"--grpc={grpc}", f"--http={http}", f"--seed={seed}"]
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: ProxyControl | None = None

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="tritonwatch-proxy-"))
        path = self._folder / "control"
        self._process = subprocess.Popen(  # noqa: S603 - no shell, our own arguments
            [
                *(sys.executable, "-m", "loadtests.chaos.network.proxy"),
                *(f"--control={path}", *self._arguments),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is the runner's to handle, which needs the proxy until the end.
            start_new_session=True,
        )
        try:
            addresses = json.loads(self._first_line())
        except BaseException:
            self.__exit__()
            raise
        self._control = ProxyControl(path, addresses["grpc"], addresses["http"])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None  # noqa: S101 - for the type checker
            assert process.stdout is not None  # noqa: S101 - for the type checker
            process.stdin.close()
            process.stdout.close()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def control(self) -> ProxyControl:
        """Where it listens, and how it is told what to do."""
        if self._control is None:
            raise LoadError("the proxy has no ports before its `with` block")
        return self._control

    @property
    def pid(self) -> int:
        """Of its process."""
        if self._process is None:
            raise LoadError("the proxy has no process outside its `with` block")
        return self._process.pid

    def _first_line(self) -> bytes:
        assert self._process is not None  # noqa: S101 - for the type checker
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            ready = selector.select(_START_SECONDS)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise LoadError(
                f"the fault proxy did not start in {_START_SECONDS:g} s; "
                "its standard error says why"
            )
        return line
