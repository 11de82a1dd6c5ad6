"""Real Triton servers for tests: one for the whole test run, and as many more as a test wants."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

# Before any of them is imported: their failures tell as much as those of tests.
pytest.register_assert_rewrite(
    *(path.stem for path in (Path(__file__).parent / "support").glob("*.py"))
)

import fake_nvml
from monitoring import Prometheus, Webhook
from requirements import lacking, require, require_triton

from exporter.triton.embedded import EmbeddedTriton

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

# A shell ignores SIGINT for what it starts in the background, nohup SIGHUP, and so would
# every process that a test starts and ends by them.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# How long an example takes shows how busy the machine is.
hypothesis.settings.register_profile(
    "unhurried", hypothesis.settings.default, deadline=None
)
hypothesis.settings.load_profile("unhurried")

DEMO_MODELS = Path(__file__).parents[1] / "deploy" / "models"
LONGEST = "test_shipped_experiments.py"
SERVERS = frozenset({"integration", "loadtests"})
"""Folders of tests that mostly wait for servers."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write tests/data/golden.prom anew from a real scrape",
    )


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Mix files that start servers with those that compute, the longest file first.

    One after the other, the servers of all processes would run at once, and the longest
    file, which came late, would be waited for alone.
    """
    if not hasattr(config, "workerinput"):
        return
    files = list(dict.fromkeys(item.path for item in items))
    kinds: dict[bool, list[Path]] = {True: [], False: []}
    for file in files:
        kinds[not SERVERS.isdisjoint(file.parts)].append(file)
    place = {
        file: number / len(of_kind)
        for of_kind in kinds.values()
        for number, file in enumerate(of_kind)
    }
    items.sort(key=lambda item: (item.path.name != LONGEST, place[item.path]))


@pytest.fixture(scope="session")
def triton_environment() -> Path:
    """The folder of the embedded Triton; skips where it is missing, fails in CI."""
    return require_triton()


@pytest.fixture(scope="session")
def triton(
    triton_environment: Path, tmp_path_factory: pytest.TempPathFactory
) -> Generator[EmbeddedTriton]:
    """The demo models on a real server, shared by all tests: do not stop or freeze it."""
    log = tmp_path_factory.mktemp("triton") / "triton.log"
    with EmbeddedTriton(DEMO_MODELS, environment=triton_environment, log=log) as server:
        yield server


@pytest.fixture
def start_triton(
    triton_environment: Path, tmp_path: Path
) -> Generator[Callable[..., EmbeddedTriton]]:
    """Start a server of the test's own, by default with the demo models.

    Takes EmbeddedTriton's arguments. What still runs at the end is killed.
    """
    with contextlib.ExitStack() as servers:

        def start(repository: Path = DEMO_MODELS, **options: Any) -> EmbeddedTriton:
            options.setdefault("environment", triton_environment)
            options.setdefault("log", tmp_path / "triton.log")
            server = servers.enter_context(EmbeddedTriton(repository, **options))
            servers.callback(server.kill)
            return server

        yield start


@pytest.fixture(scope="session")
def require_commands() -> Callable[..., None]:
    """Skip where programs are missing, fail in CI: `require_commands("promtool")`."""
    return require


@pytest.fixture
def start_prometheus(tmp_path: Path) -> Generator[Callable[..., Prometheus]]:
    """Start a real Prometheus; takes the arguments of `monitoring.Prometheus` after
    the folder. It ends with the test."""
    require("prometheus")
    with contextlib.ExitStack() as servers:

        def start(*jobs: Any, **options: Any) -> Prometheus:
            return servers.enter_context(Prometheus(tmp_path, *jobs, **options))

        yield start


@pytest.fixture
def webhook() -> Generator[Webhook]:
    """Where an Alertmanager of the test's own sends its alerts."""
    require("prometheus-alertmanager")
    with Webhook() as running:
        yield running


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libnvidia-ml.so.1 of our own; skips without a C compiler, fails in CI."""
    if fake_nvml.compiler() is None:
        lacking("found no C compiler: apt-get install gcc libc6-dev")
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def reachable_path() -> Generator[Path]:
    """A folder that everybody can reach, unlike `tmp_path`, which is its owner's."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path
