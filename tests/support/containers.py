"""A real Triton in a real container of this host, by runc and without an image.

Its file system is the host's, read only but for the folder of temporary files; processes,
their names and shared memory are its own, the network is the host's.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pytest
from monitoring import free_port
from waiting import patience, wait_until

from exporter.errors import TritonError
from exporter.triton import backend
from exporter.triton.http import HttpClient
from loadtests.chaos.primitives.process_refs import new_token

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PATH: Final = {"PATH": "/usr/bin:/bin"}
_NAMESPACES: Final = ("pid", "mount", "ipc", "uts")
_OWN: Final = {"proc", "dev", "sys"}
_INIT: Final = "trap 'exit 0' TERM; \"$@\" & while :; do wait; sleep 0.05; done"
"""Stays when the server is gone, as an entry point may that starts it anew."""


def require_containers(folder: Path) -> None:
    """Go on only where one can run: root of a container of its own may not make more."""
    name = new_token()
    _write(folder, ["true"], {})
    done = subprocess.run(
        ["runc", "run", "--bundle", str(folder), name],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    if done.returncode:
        pytest.skip(f"this machine runs no containers: {done.stderr.strip()}")


class TritonContainer:
    """Within the block it runs; `name` is what runc calls it."""

    def __init__(
        self, folder: Path, repository: Path, environment: Path, *, init: bool = False
    ) -> None:
        self.name = new_token()
        self.grpc, self.http, self.metrics = (
            f"127.0.0.1:{free_port()}" for _ in range(3)
        )
        self._folder, self._repository = folder, repository
        self._environment = backend.inspect(environment)
        self._init = init
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        # Near to the root: the paths of sockets are short.
        self._work = tempfile.TemporaryDirectory(prefix="tritonwatch-")
        self._environment.prepare(Path(self._work.name))
        server = list(self._command())
        _write(
            self._folder,
            ["sh", "-c", _INIT, "sh", *server] if self._init else server,
            self._environment.settings(Path(self._work.name)),
        )
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                ["runc", "run", "--bundle", str(self._folder), self.name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            wait_until(self.ready, f"a server in a container, see {self.log}", 30)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        subprocess.run(
            ["runc", "delete", "--force", self.name], check=False, capture_output=True
        )
        if self._process is not None:
            self._process.wait(patience(20))
        self._work.cleanup()

    @property
    def log(self) -> Path:
        return self._folder / "log"

    def ready(self) -> bool:
        with contextlib.closing(HttpClient(self.http)) as client:
            try:
                client.get("/v2/health/ready", timeout_seconds=1.0)
            except TritonError:
                return False
        return True

    def _command(self) -> Iterator[str]:
        yield str(self._environment.server)
        yield f"--model-repository={self._repository}"
        yield f"--backend-directory={Path(self._work.name) / 'backends'}"
        yield from ("--model-control-mode=explicit", "--load-model=*")
        yield from ("--disable-auto-complete-config", "--exit-timeout-secs=1")
        for kind in ("grpc", "http", "metrics"):
            host, _, port = getattr(self, kind).rpartition(":")
            yield f"--{kind}-address={host}"
            yield f"--{kind}-port={port}"


def _write(folder: Path, command: list[str], environment: Mapping[str, str]) -> None:
    """A bundle as runc takes it."""
    (folder / "rootfs").mkdir(parents=True)
    bundle = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": command,
            "env": [f"{k}={v}" for k, v in {**_PATH, **environment}.items()],
            "cwd": "/",
        },
        "root": {"path": "rootfs"},
        "mounts": list(_mounts()),
        "linux": {"namespaces": [{"type": kind} for kind in _NAMESPACES]},
    }
    (folder / "config.json").write_text(json.dumps(bundle), encoding="utf-8")


def _mounts() -> Iterator[dict[str, object]]:
    yield {"destination": "/proc", "type": "proc", "source": "proc"}
    yield {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}
    yield {"destination": "/dev/shm", "type": "tmpfs", "source": "shm"}
    for folder in sorted(Path("/").iterdir()):
        if folder.is_dir() and folder.name not in _OWN:
            writable = "rw" if folder.name == "tmp" else "ro"
            yield {
                "destination": str(folder),
                "type": "bind",
                "source": str(folder.resolve()),
                "options": ["rbind", writable],
            }
