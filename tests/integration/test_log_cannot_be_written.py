"""Standard error that cannot be written: the sidecar works and ends as it does with one."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from fake_triton import FakeModel, FakeTriton
from monitoring import free_port
from sidecars import COMMAND, Page
from waiting import patience

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


@contextlib.contextmanager
def full_disk() -> Generator[int]:
    with Path("/dev/full").open("wb") as file:
        yield file.fileno()


@contextlib.contextmanager
def full_pipe_that_nobody_reads() -> Generator[int]:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x")
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


def closed() -> None:
    os.close(2)


def eventually(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + patience()
    while True:
        # Until it listens.
        with contextlib.suppress(OSError, http.client.HTTPException):
            if holds():
                return
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


class Deaf:
    """A sidecar whose log leads nowhere, so its port is chosen for it."""

    def __init__(self, fake: FakeTriton, folder: Path) -> None:
        self.port = free_port()
        self.file = folder / "tritonwatch.yaml"
        self.config = {
            "target": {"grpc": fake.grpc, "http": fake.http, "metrics": None},
            "listen": {"address": "127.0.0.1", "port": self.port, "tap": {"port": 0}},
            "collectors": [{"kind": "server", "interval_seconds": 0.5}],
            "probes": [{"kind": "synthetic", "interval_seconds": 0.5}],
            "power": None,
            "log": {"level": "debug"},
        }
        self.write()

    def write(self) -> None:
        self.file.write_text(yaml.safe_dump(self.config), "utf-8")

    def ask(self, path: str, method: str = "GET") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=patience(10)
        )
        with contextlib.closing(connection):
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def value(self, name: str) -> float | None:
        return Page(self.ask("/metrics")[1]).value(name)


@pytest.mark.parametrize("stderr", [full_disk, full_pipe_that_nobody_reads, closed])
def test_probes_scrapes_reloads_and_signals_do_not_depend_on_the_log(
    tmp_path, stderr
) -> None:
    with FakeTriton([FakeModel("m")]) as fake, contextlib.ExitStack() as stack:
        deaf = Deaf(fake, tmp_path)
        options = (
            {"preexec_fn": closed}
            if stderr is closed
            else {"stderr": stack.enter_context(stderr())}
        )
        process = subprocess.Popen(
            [COMMAND, "serve", "--config", deaf.file, "--web.enable-lifecycle"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            **options,
        )
        try:
            eventually(lambda: deaf.value("triton_model_serving") == 1, "a probe")

            slo = {"kind": "availability", "name": "a", "objective_ratio": 0.5}
            deaf.config["slos"] = [slo]
            deaf.write()
            process.send_signal(signal.SIGHUP)
            eventually(lambda: deaf.value("triton_slo_objective_ratio"), "the reload")
            deaf.file.write_text("listen: {port: -1}")
            status, body = deaf.ask("/-/reload", "POST")
            assert (status, b"listen.port: found -1" in body) == (500, True)
            assert deaf.value("tritonwatch_config_last_reload_successful") == 0

            process.send_signal(signal.SIGTERM)
            assert process.wait(patience()) == 0
        finally:
            process.kill()
            process.wait()
