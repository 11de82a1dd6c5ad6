"""The sidecar as a process of its own, and what the kernel says of a process."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from figures import require
from monitoring import free_port

from exporter.errors import EmbeddedTritonError
from exporter.triton import backend

if TYPE_CHECKING:
    from collections.abc import Generator

    from exporter.triton.embedded import EmbeddedTriton

COMMAND = str(Path(sys.executable).with_name("tritonwatch"))
MODELS = Path(__file__).parents[2] / "deploy" / "models"
MODEL = "digits_fp32"
_TICKS = os.sysconf("SC_CLK_TCK")
_WAIT_SECONDS = 20.0
_OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


def require_triton() -> None:
    """Skip where the embedded Triton or the demo models are missing."""
    try:
        backend.inspect(backend.find())
        found = (MODELS / MODEL).is_dir()
    except EmbeddedTritonError:
        found = False
    require(found=found, what="embedded Triton with demo models", how="make env")


@dataclass(frozen=True, slots=True)
class Process:
    """A running process, by pid."""

    pid: int

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        stat = Path(f"/proc/{self.pid}/stat").read_text("utf-8").rpartition(")")[2]
        fields = stat.split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_bytes(self, field: str) -> int:
        """A line of /proc/PID/status: VmRSS is what is resident now, VmHWM the most."""
        for line in Path(f"/proc/{self.pid}/status").read_text("utf-8").splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
        raise LookupError(f"found no {field} for process {self.pid}")

    def maps(self, part: str) -> list[str]:
        """The mapped files whose path holds `part`."""
        lines = Path(f"/proc/{self.pid}/maps").read_text("utf-8").splitlines()
        return sorted({ln.split()[-1] for ln in lines if part in ln.split()[-1]})


class Scraper:
    """A client that keeps its connection while the server does, as Prometheus."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def scrape(self) -> tuple[float, bytes]:
        """Seconds from the request to the last byte, and the page.

        Connecting is no part of it.
        """
        try:
            return self._scrape()
        except (http.client.RemoteDisconnected, ConnectionError):
            # The server closed it for having been idle, as it may.
            self._connection.close()
            return self._scrape()

    def _scrape(self) -> tuple[float, bytes]:
        if self._connection.sock is None:
            self._connection.connect()
        started = time.perf_counter()
        self._connection.request("GET", "/metrics", headers=_OPENMETRICS)
        answer = self._connection.getresponse()
        body = answer.read()
        seconds = time.perf_counter() - started
        if answer.status != http.client.OK:
            raise http.client.HTTPException(f"/metrics answers {answer.status}")
        return seconds, body


def triton_settings(triton: EmbeddedTriton) -> dict[str, str]:
    """`target` of a configuration file."""
    return {"grpc": triton.grpc, "http": triton.http, "metrics": triton.metrics}


@contextlib.contextmanager
def launched(*command: str) -> Generator[Process]:
    """A child that ends with the block: SIGTERM, then SIGKILL."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield Process(child.pid)
    finally:
        if child.poll() is None:
            child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextlib.contextmanager
def sidecar(config: dict[str, Any]) -> Generator[tuple[Process, int]]:
    """`tritonwatch serve` on a free port of loopback; its process and the port.

    Nothing is waited for: see `first_page`.
    """
    port = free_port()
    listen = {**config.get("listen", {}), "address": "127.0.0.1", "port": port}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tritonwatch.yaml"
        whole = {"log": {"level": "error"}, **config, "listen": listen}
        file.write_text(yaml.safe_dump(whole), "utf-8")
        with launched(COMMAND, "serve", "--config", str(file)) as process:
            yield process, port


def first_page(port: int, holding: bytes = b"") -> bytes:
    """The first page of the sidecar that holds that text, asked for every 2 ms.

    Raises:
        TimeoutError: there is none within 20 s.
    """
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException):
            scraper = Scraper(port)
            with contextlib.closing(scraper):
                _, page = scraper.scrape()
            if holding in page:
                return page
        time.sleep(0.002)
    raise TimeoutError(f"no page with {holding!r} on port {port} in {_WAIT_SECONDS} s")
