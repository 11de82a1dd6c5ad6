"""A real Triton server of our own, on loopback, that never outlives its owner.

    with EmbeddedTriton(Path("deploy/models")) as triton:
        client = InferenceServerClient(triton.grpc)

It ends with the `with` block, and with the owner in every other way: a process between
the two (`keeper.py`) waits for the owner's death and cleans up, so that no handler need
be installed. A handler only makes the end gentle; `exporter.system.termination` has one.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from exporter.errors import EmbeddedTritonError
from exporter.network.held_port import LOOPBACK, hold_port
from exporter.triton import backend, keeper

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

HOST: Final = LOOPBACK
ModelControl = Literal["none", "explicit", "poll"]
_KINDS: Final = ("grpc", "http", "metrics")
_ATTEMPTS: Final = 5
_LOG_LINES: Final = 12
_WRONG: Final = ("error", "fail", "cannot")
# Messages of every server on a machine without a GPU.
_NOISE: Final = ("CudaDriverHelper", "NVML", "DCGM", "pinned")
_LOCK_FAILED: Final = "boost::interprocess::lock_exception"
_POLL_SECONDS: Final = 0.01
_KEEPER_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Ports:
    """The three ports of a server, on loopback."""

    grpc: int
    http: int
    metrics: int


class EmbeddedTriton:
    """One Triton server, as a context manager. Not thread-safe.

    Args:
        repository: the model repository.
        environment: holds the wheel; by default the nearest `.triton`.
        ports: by default three free ones, held until the end of the block, so that a
            restart finds them free.
        arguments: more arguments of tritonserver.
        model_control: tritonserver's `--model-control-mode`.
        log: appended to and kept; by default a file in the temporary folder, which is
            kept only if something went wrong.
        ready_timeout_seconds: from the start to ready.
        auto_complete: let Triton ask models for what their configuration leaves out,
            which starts every Python model twice (about 1 s more).

    Raises:
        EmbeddedTritonError: there is no such environment, or it lacks something.
    """

    def __init__(
        self,
        repository: Path,
        *,
        environment: Path | None = None,
        ports: Ports | None = None,
        arguments: Sequence[str] = (),
        model_control: ModelControl = "none",
        log: Path | None = None,
        ready_timeout_seconds: float = 60.0,
        auto_complete: bool = False,
    ) -> None:
        self.repository = Path(repository).absolute()
        self._environment = backend.inspect(environment or backend.find())
        self._fixed_ports = ports
        self._arguments = tuple(arguments)
        self._model_control = model_control
        self._log = log
        self._ready_timeout_seconds = ready_timeout_seconds
        self._auto_complete = auto_complete
        self._keep_log = log is not None
        self._resources = contextlib.ExitStack()
        self._reservation = contextlib.ExitStack()
        self._ports: Ports | None = None
        self._folder = Path()
        self._keeper: subprocess.Popen[str] | None = None
        self._pid = 0
        self._was_stopped = False

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.push(self.__exit__)
            self._folder = Path(tempfile.mkdtemp(prefix="tritonwatch-"))
            self._resources.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self._environment.prepare(self._folder)
            self._resources.callback(self._drop_log)
            self._reserve()
            self.start()
            undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        died = self._keeper is not None and not self.running and not self._was_stopped
        self._keep_log |= died or error is not None
        try:
            self.stop()
        finally:
            self._reservation.close()
            self._resources.close()

    @property
    def ports(self) -> Ports:
        """The ports in use."""
        if self._ports is None:
            raise EmbeddedTritonError("the server has no ports before its `with` block")
        return self._ports

    @property
    def grpc(self) -> str:
        """Host and port of gRPC."""
        return f"{HOST}:{self.ports.grpc}"

    @property
    def http(self) -> str:
        """Host and port of HTTP."""
        return f"{HOST}:{self.ports.http}"

    @property
    def metrics(self) -> str:
        """Host and port of the metrics page, which is /metrics."""
        return f"{HOST}:{self.ports.metrics}"

    @property
    def pid(self) -> int:
        """Pid of tritonserver; its process group and session have the same number."""
        return self._pid

    @property
    def log(self) -> Path:
        """Log of the server and its models, over all its starts."""
        return self._log or self._folder.with_suffix(".log")

    @property
    def version(self) -> str:
        """The version the running server reports."""
        metadata: dict[str, Any] = json.loads(_get(self.ports.http, "/v2"))
        return str(metadata["version"])

    @property
    def running(self) -> bool:
        """Return whether the server's process is there; a frozen one is."""
        return self._keeper is not None and self._keeper.poll() is None

    def stub_pids(self) -> list[int]:
        """Pids of the backend processes, one for each instance of a Python model."""
        return [pid for pid in keeper.members(self._folder.name) if pid != self._pid]

    def start(self) -> None:
        """Start the server, again after `stop` or `kill`, and wait until it is ready.

        Raises:
            EmbeddedTritonError: it ended or stayed unready; quotes the log.
        """
        if self.running:
            return
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start_once()
            except _PortTakenError:
                if self._fixed_ports is not None or attempt == _ATTEMPTS:
                    raise
                self._reserve()
            except _LockError:
                if attempt == _ATTEMPTS:
                    raise
            else:
                return

    def stop(self, *, grace_seconds: float = 10.0) -> int | None:
        """End the server: SIGTERM, then SIGKILL; its exit code, None if it never ran."""
        if self._keeper is not None and self.running:
            self._was_stopped = True
            self._signal_server(signal.SIGTERM)
            self.thaw()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._keeper.wait(grace_seconds)
        return self.kill()

    def kill(self) -> int | None:
        """SIGKILL to the server and its backend processes, at once.

        Returns the exit code, 128 + 9 where this was what ended it, None if it never
        ran. Shared memory is removed and every process reaped when this returns.
        """
        if self._keeper is None:
            return None
        self._was_stopped |= self.running
        if self._pid:
            self._signal_group(signal.SIGKILL)
        else:
            # Interrupted before it said the server's pid, which dies with it.
            self._keeper.kill()
        return self._keeper.wait(_KEEPER_SECONDS)

    def restart(self) -> None:
        """Stop and start on the same ports."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP to the server and its backend processes alike."""
        self._signal_group(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT after `freeze`."""
        self._signal_group(signal.SIGCONT)

    def _drop_log(self) -> None:
        if not self._keep_log:
            self.log.unlink(missing_ok=True)

    def _reserve(self) -> None:
        self._reservation.close()
        wanted = self._fixed_ports or Ports(0, 0, 0)
        self._ports = Ports(*(self._hold(getattr(wanted, kind)) for kind in _KINDS))

    def _hold(self, port: int) -> int:
        try:
            holder = self._reservation.enter_context(hold_port(port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise _PortTakenError(f"{HOST}:{port}") from None
            raise
        return int(holder.getsockname()[1])

    def _command(self) -> list[str]:
        command = [
            str(self._environment.server),
            f"--model-repository={self.repository}",
            f"--backend-directory={self._folder / 'backends'}",
            # Our own prefix, by which remains of a killed server are recognised.
            f"--backend-config=python,shm-region-prefix-name={self._folder.name}_",
            f"--model-control-mode={self._model_control}",
            "--exit-timeout-secs=5",
        ]
        for kind in _KINDS:
            command.append(f"--{kind}-address={HOST}")
            command.append(f"--{kind}-port={getattr(self.ports, kind)}")
        if not self._auto_complete:
            command.append("--disable-auto-complete-config")
        return [*command, *self._arguments]

    def _start_once(self) -> None:
        deadline = time.monotonic() + self._ready_timeout_seconds
        self.log.touch()
        offset = self.log.stat().st_size
        self._launch()
        while not self._ready():
            if not self.running:
                raise self._failure(f"ended with {self.kill()} while starting", offset)
            if time.monotonic() > deadline:
                self.kill()
                waited = f"{self._ready_timeout_seconds:g} s"
                raise self._failure(f"was not ready after {waited}", offset)
            time.sleep(_POLL_SECONDS)

    def _launch(self) -> None:
        settings = self._environment.settings(self._folder).items()
        self._pid, self._was_stopped = 0, False
        self._keeper = subprocess.Popen(  # noqa: S603 - no shell, our own arguments
            [
                *(sys.executable, "-I", "-S", keeper.__file__),
                *(str(os.getpid()), self._folder.name, str(self._folder)),
                str(self.log),
                *(f"{name}={value}" for name, value in settings),
                "--",
                *self._command(),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._keeper.stdout is not None  # noqa: S101 - for the type checker
        with self._keeper.stdout as answer:
            self._pid = int(answer.readline() or 0)

    def _ready(self) -> bool:
        try:
            _get(self.ports.http, "/v2/health/ready")
            # The metrics page begins to listen last.
            if "--allow-metrics=false" not in self._arguments:
                _get(self.ports.metrics, "/metrics")
        except (OSError, http.client.HTTPException):
            return False
        return True

    def _failure(self, what: str, offset: int) -> EmbeddedTritonError:
        with self.log.open("rb") as log:
            log.seek(offset)
            text = log.read().decode(errors="replace")
        if "already in use" in text or "Failed to add listening port" in text:
            return _PortTakenError(str(self.ports), _relevant(text))
        kind = _LockError if _LOCK_FAILED in text else EmbeddedTritonError
        return kind(
            f"tritonserver on {self.repository} {what}; the log {self.log} ends with:\n"
            + _relevant(text)
        )

    def _signal_server(self, number: signal.Signals) -> None:
        if self._pid and self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def _signal_group(self, number: signal.Signals) -> None:
        if self._pid and self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, number)


class _PortTakenError(EmbeddedTritonError):
    """Another process listens on one of our ports."""

    def __init__(self, ports: str, detail: str = "") -> None:
        super().__init__(
            f"{ports} is in use by another process; end it or choose another\n{detail}".rstrip()
        )


class _LockError(EmbeddedTritonError):
    """The server aborted: a Python model's process was too slow to answer it.

    Triton 2.51 does so on a machine without free CPU (triton-inference-server/server#8882).
    """


def _get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection(HOST, port, timeout=1.0)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    if answer.status != http.client.OK:
        raise http.client.HTTPException(f"{path} answers {answer.status}")
    return body


def _relevant(text: str) -> str:
    """Return the last lines with an error; without one, simply the last."""
    lines = [
        line
        for line in text.splitlines()
        if line.strip(" +|-") and not any(word in line for word in _NOISE)
    ]
    wrong = [line for line in lines if any(word in line.lower() for word in _WRONG)]
    return "\n".join(f"  {line}" for line in (wrong or lines)[-_LOG_LINES:])
