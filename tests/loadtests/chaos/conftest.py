"""A real Triton that chaos tests may break, with models that may be replaced."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fault_cycles import Client
from playground import Playground
from process_experiments import MODEL as DIGITS
from process_experiments import MODELS as DEMO
from process_experiments import Experiments
from sites import EmbeddedSite
from waiting import patience

from exporter.triton.embedded import EmbeddedTriton
from loadtests.chaos.primitives.process_refs import ProcessRef

if TYPE_CHECKING:
    from collections.abc import Generator

    from loadtests.chaos.faults.fault import Fault

MODELS = Path(__file__).parents[2] / "data" / "models"


@pytest.fixture(scope="session")
def _breakable(
    triton_environment: Path, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Playground]:
    repository = tmp_path_factory.mktemp("breakable") / "models"
    shutil.copytree(MODELS, repository)
    with EmbeddedTriton(
        repository,
        environment=triton_environment,
        model_control="explicit",
        arguments=["--load-model=double", "--load-model=sleepy"],
    ) as triton:
        yield Playground(triton)
        # Its gentle end would wait for what tests have left in it.
        triton.kill()


@pytest.fixture
def breakable(_breakable: Playground) -> Generator[Playground]:
    """One real server for all tests, as new for every one of them."""
    _breakable.restore()
    yield _breakable
    _breakable.restore()


@pytest.fixture
def site(breakable: Playground) -> EmbeddedSite:
    """Tests of faults elsewhere than on that server have their own."""
    return EmbeddedSite(breakable.triton)


@pytest.fixture
def client(breakable: Playground) -> Generator[Client]:
    """Asks it for what its models answer."""
    with Client(breakable.http) as asking:
        asking.serves()
        yield asking


@pytest.fixture(scope="module")
def loaded(triton_environment: Path, models: Path) -> Generator[EmbeddedTriton]:
    """A server that faults may end, in place of the one that other tests share."""
    with EmbeddedTriton(models, environment=triton_environment) as server:
        yield server


@pytest.fixture
def undone() -> Generator[list[tuple[type[Fault], dict[str, Any]]]]:
    """What is in it is reverted in any case: the host is everybody's."""
    injected: list[tuple[type[Fault], dict[str, Any]]] = []
    yield injected
    for kind, record in reversed(injected):
        kind.revert(record)


@pytest.fixture(scope="module")
def triton_process(
    triton_environment: Path, tmp_path_factory: pytest.TempPathFactory
) -> Generator[EmbeddedTriton]:
    """One server for the experiments of this module that leave it as it was."""
    folder = tmp_path_factory.mktemp("process")
    shutil.copytree(DEMO / DIGITS, folder / "models" / DIGITS)
    with EmbeddedTriton(
        folder / "models", environment=triton_environment, log=folder / "log"
    ) as server:
        yield server


@pytest.fixture
def experiments(
    triton_process: EmbeddedTriton, tmp_path: Path
) -> Generator[Experiments]:
    found = Experiments(triton_process, tmp_path / "state")
    yield found
    triton_process.thaw()
    assert found.left() == []


@pytest.fixture
def victim() -> Generator[ProcessRef]:
    """A process that may be stopped."""
    process = subprocess.Popen(["sleep", "120"])
    reference = ProcessRef.of(process.pid)
    assert reference is not None
    yield reference
    process.kill()
    process.wait()


@pytest.fixture
def stopped(victim: ProcessRef) -> ProcessRef:
    """A process that is stopped."""
    victim.send(signal.SIGSTOP)
    assert victim.wait_until("T", patience())
    return victim
