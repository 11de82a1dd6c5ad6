"""The sidecar as a process of its own, beside a real Triton, and how to read its page."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml
from parts import require_triton

from exporter.errors import TritonError
from exporter.exposition import parse_text
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.model import InferRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

INTERVAL_SECONDS = 0.5
SERVER_TIMEOUT_SECONDS = 0.4
PROBE_TIMEOUT_SECONDS = 0.5
# What a machine with two busy cores may add to anything that is waited for.
SLACK_SECONDS = 1.5
COMMAND = str(Path(sys.executable).with_name("tritonwatch"))
MODELS = Path(__file__).parents[1] / "data" / "models"


# What a page says.


class Page:
    """One scrape in Prometheus text format."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.series: dict[str, list[tuple[dict[str, str], float]]] = {}
        for name, labels, value in parse_text(body):
            self.series.setdefault(name, []).append((labels, value))

    def all(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """The series of that name whose labels include these."""
        wanted = labels.items()
        return [s for s in self.series.get(name, ()) if wanted <= s[0].items()]

    def value(self, name: str, **labels: str) -> float | None:
        """The one such series, None where there is none."""
        found = self.all(name, **labels)
        assert len(found) < 2, f"{name}{labels} is ambiguous: {found}"
        return found[0][1] if found else None

    def sum(self, name: str, **labels: str) -> float:
        """All such series added up."""
        return sum(value for _, value in self.all(name, **labels))

    def values(self, name: str, **labels: str) -> list[float]:
        """The values of all such series."""
        return [value for _, value in self.all(name, **labels)]

    def label(self, name: str, label: str, **labels: str) -> set[str]:
        """The values one label has in them."""
        return {found[label] for found, _ in self.all(name, **labels)}


@dataclass(frozen=True)
class Answer:
    """An HTTP answer of the sidecar."""

    status: int
    body: bytes
    headers: dict[str, str]
    seconds: float

    @property
    def text(self) -> str:
        return self.body.decode()


# The sidecar.


class SidecarProcess:
    """`tritonwatch serve` on a port of its own choosing."""

    def __init__(self, config: dict[str, Any], folder: Path, *arguments: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "tritonwatch.yaml"
        self.write(config)
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [COMMAND, "serve", "--config", str(self.file), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.port = 0

    def write(self, config: dict[str, Any]) -> None:
        """Replace the configuration file; SIGHUP makes it count."""
        self.file.write_text(yaml.safe_dump(config), "utf-8")

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait_listening(self, timeout_seconds: float = 20.0) -> None:
        """Wait for the line that says where it listens."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            found = re.search(r"event=serving .*address=\S*?:(\d+)", self.log)
            if found:
                self.port = int(found[1])
                return
            assert self.running, f"it ended while starting:\n{self.log}"
            assert time.monotonic() < deadline, f"it does not listen:\n{self.log}"
            time.sleep(0.02)

    def get(
        self, path: str, *, method: str = "GET", timeout: float = 10.0, **headers: str
    ) -> Answer:
        """One request on a connection of its own."""
        started = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=sent)
            reply = connection.getresponse()
            body = reply.read()
        taken = time.monotonic() - started
        answered = {name.lower(): value for name, value in reply.getheaders()}
        return Answer(reply.status, body, answered, taken)

    def page(self) -> Page:
        """What /metrics says now."""
        answer = self.get("/metrics")
        assert answer.status == 200, answer.text
        return self.parsed(answer)

    def parsed(self, answer: Answer) -> Page:
        """An answer in Prometheus text."""
        return Page(answer.body)

    def wait(
        self,
        holds: Callable[[Page], bool],
        timeout_seconds: float = 10.0,
        *,
        since: float | None = None,
    ) -> Page:
        """The first page on which `holds`; fails with the last page and the log.

        `timeout_seconds` counts from `since`, an instant of time.monotonic().
        """
        deadline = (since or time.monotonic()) + timeout_seconds
        while True:
            asked = time.monotonic()
            page = self.page()
            if holds(page):
                return page
            if asked > deadline:
                shown = "\n".join(
                    line
                    for line in page.body.decode().splitlines()
                    if not line.startswith("#") and "_bucket{" not in line
                )
                pytest.fail(
                    f"did not come about in {timeout_seconds:.1f} s; the page:\n"
                    f"{shown}\nthe log:\n{self.log[-4000:]}"
                )
            time.sleep(0.03)

    def settle(self, looks: int = 2, timeout_seconds: float = 10.0) -> Page:
        """The page after so many more successful looks at the statistics."""
        stamp = "tritonwatch_collector_last_success_timestamp_seconds"
        seen: set[float] = set()

        def looked(page: Page) -> bool:
            value = page.value(stamp, collector="statistics")
            if value is not None:
                seen.add(value)
            fresh = page.all("triton_requests_total")
            return len(seen) > looks and bool(fresh)

        return self.wait(looked, timeout_seconds)

    def end(
        self, number: signal.Signals = signal.SIGTERM, timeout_seconds: float = 20.0
    ) -> tuple[int, float]:
        """Send the signal; the exit status and the seconds it took."""
        started = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(timeout_seconds)
        return code, time.monotonic() - started

    def close(self) -> None:
        """End it by all means."""
        if self.running:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def settings(server: Any, **changes: Any) -> dict[str, Any]:
    """A configuration for tests: a look twice a second, short timeouts.

    `server` is an EmbeddedTriton or a FakeTriton; `probe` adds to the one probe,
    `collectors` and everything else replaces what stands at the top of the file.
    """
    probe = {
        "kind": "synthetic",
        "interval_seconds": INTERVAL_SECONDS,
        "timeout_seconds": PROBE_TIMEOUT_SECONDS,
        "linger_seconds": 1.0,
        "max_requests_per_second": 200,
        **changes.pop("probe", {}),
    }
    every = {"interval_seconds": INTERVAL_SECONDS}
    return {
        "target": {"grpc": server.grpc, "http": server.http, "metrics": server.metrics},
        "listen": {"address": "127.0.0.1", "port": 0},
        "collectors": [
            {"kind": "server", "timeout_seconds": SERVER_TIMEOUT_SECONDS, **every},
            {"kind": "statistics", "timeout_seconds": SERVER_TIMEOUT_SECONDS, **every},
            {"kind": "process", **every},
        ],
        "probes": [probe],
        # What this machine has for sensors shall change no test.
        "power": None,
        **changes,
    }


@pytest.fixture(name="settings", scope="session")
def settings_fixture() -> Callable[..., dict[str, Any]]:
    return settings


@pytest.fixture(scope="session")
def sidecar_process() -> type[SidecarProcess]:
    """For sidecars of another scope than a test's, and those that shall not start."""
    return SidecarProcess


@pytest.fixture
def start_sidecar(tmp_path: Path) -> Generator[Callable[..., SidecarProcess]]:
    """Start `tritonwatch serve` with a configuration; ends with the test."""
    started: list[SidecarProcess] = []

    def start(config: dict[str, Any], *arguments: str) -> SidecarProcess:
        folder = tmp_path / f"sidecar-{len(started)}"
        sidecar = SidecarProcess(config, folder, *arguments)
        started.append(sidecar)
        sidecar.wait_listening()
        return sidecar

    yield start
    for sidecar in started:
        sidecar.close()


# A real Triton that a test may load, unload, kill and freeze.


class Playground:
    """A real Triton with the models of tests/data/models, under explicit control."""

    def __init__(self, triton: EmbeddedTriton) -> None:
        self.triton = triton
        self.grpc, self.http, self.metrics = triton.grpc, triton.http, triton.metrics

    def model(self, name: str, action: str) -> None:
        """Load or unload a model and wait until Triton is done with it."""
        self._post(f"/v2/repository/models/{name}/{action}")
        deadline = time.monotonic() + 15
        while self.states().get(name) != ("READY" if action == "load" else None):
            assert time.monotonic() < deadline, f"{name} does not {action}"
            time.sleep(0.02)

    def states(self) -> dict[str, str | None]:
        """Each model's state; None where it is not loaded."""
        index = json.loads(self._post("/v2/repository/index"))
        return {
            entry["name"]: None
            if entry.get("state") in (None, "UNAVAILABLE")
            else entry["state"]
            for entry in index
        }

    def touch(self, name: str) -> None:
        """Make the model's file look changed, so that `load` really loads it anew."""
        os.utime(self.triton.repository / name / "1" / "model.py")

    def restore(self) -> None:
        """Running, not frozen, with both models."""
        self.triton.thaw()
        self.triton.start()
        for name in ("double", "sleepy"):
            if self.states().get(name) != "READY":
                self.model(name, "load")
        if not self._answers():
            self.triton.restart()

    def _answers(self) -> bool:
        sender = Traffic(self.grpc)
        try:
            sender.double()
            sender.sleepy(0)
        except TritonError:
            return False
        finally:
            sender.close()
        return True

    def _post(self, path: str) -> bytes:
        request = urllib.request.Request(f"http://{self.http}{path}", b"{}")
        with urllib.request.urlopen(request, timeout=15) as reply:
            return reply.read()


@pytest.fixture(scope="session")
def _playground(tmp_path_factory) -> Generator[Playground]:
    require_triton()
    repository = tmp_path_factory.mktemp("repository") / "models"
    shutil.copytree(MODELS, repository)
    # For tests that watch a model come: two more under other names.
    for name in ("late", "doomed"):
        shutil.copytree(MODELS / "double", repository / name)
    arguments = ["--load-model=double", "--load-model=sleepy"]
    with EmbeddedTriton(
        repository, model_control="explicit", arguments=arguments
    ) as triton:
        yield Playground(triton)


@pytest.fixture
def playground(_playground: Playground) -> Generator[Playground]:
    """One real server for all tests, as new for every one of them."""
    _playground.restore()
    yield _playground
    _playground.restore()
    for name in ("late", "doomed"):
        if _playground.states().get(name) is not None:
            _playground.model(name, "unload")


class Traffic:
    """Production as far as the sidecar can know: requests with ids of our own."""

    def __init__(self, grpc: str) -> None:
        self._client = GrpcClient(grpc)
        self.sent = 0

    def close(self) -> None:
        self._client.close()

    def double(self, count: int = 1, *, rows: int = 1) -> None:
        """Send requests of `rows` rows each to `double`, one after the other."""
        x = np.ones((rows, 8), np.float32)
        for _ in range(count):
            self._infer("double", {"x": x})

    def sleepy(self, delay_ms: int) -> None:
        """One request to `sleepy`."""
        self._infer("sleepy", {"x": np.ones(1, np.float32)}, delay_ms=delay_ms)

    def _infer(self, model: str, inputs: dict[str, Any], **parameters: int) -> None:
        self.sent += 1
        self._client.infer(
            InferRequest(
                model,
                "",
                f"production-{self.sent}",
                inputs,
                dict.fromkeys(inputs, "FP32"),
                parameters,
            ),
            timeout_seconds=10,
        )


@pytest.fixture
def traffic(playground: Playground) -> Generator[Traffic]:
    sender = Traffic(playground.grpc)
    yield sender
    sender.close()


@pytest.fixture
def unused_port() -> Generator[int]:
    """A port of loopback on which nobody listens, held until the end of the test."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.fixture
def limits() -> Limits:
    return Limits()


@dataclass(frozen=True)
class Limits:
    """How long the sidecar may take to see what happened, in seconds."""

    interval: float = INTERVAL_SECONDS
    notice: float = INTERVAL_SECONDS + SERVER_TIMEOUT_SECONDS + SLACK_SECONDS
    """Until triton_up says that nobody answers: one interval and one timeout."""
    recovery: float = 2 * INTERVAL_SECONDS + 1.5 + SLACK_SECONDS
    """Two intervals, and the 1.5 s a probe may wait for an answer that never comes."""
