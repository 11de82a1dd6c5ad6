"""The sidecar as a process of its own, beside a real Triton that a test may break."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from machine_browser import chromium
from playground import Playground, Traffic
from receiver import Receiver
from requirements import require_triton
from sidecars import SidecarProcess

from exporter.network.held_port import hold_port
from exporter.triton.embedded import EmbeddedTriton

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

INTERVAL_SECONDS = 0.5
SERVER_TIMEOUT_SECONDS = 0.4
PROBE_TIMEOUT_SECONDS = 0.5
# What a machine with two busy cores may add to anything that is waited for.
SLACK_SECONDS = 1.5
MODELS = Path(__file__).parents[1] / "data" / "models"


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


# A browser for the status page.


@pytest.fixture
def receiver():
    server = Receiver()
    yield server
    server.close()


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def opened(browser):
    """Open a sidecar's page; fails the test on any error of the page's script."""
    errors = []
    contexts = []

    def open_page(port: int, *, folded: bool = False, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda message: (
                errors.append(message.text)
                if "Content Security Policy" in message.text
                else None
            ),
        )
        page.goto(f"http://127.0.0.1:{port}/")
        if not folded:
            page.get_by_role("button", name="Unfold all").click()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


# A real Triton that a test may load, unload, kill and freeze.


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


@pytest.fixture
def traffic(playground: Playground) -> Generator[Traffic]:
    sender = Traffic(playground.grpc)
    yield sender
    sender.close()


@pytest.fixture
def unused_port() -> Generator[int]:
    """A port of loopback on which nobody listens, held until the end of the test."""
    with hold_port() as holder:
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
