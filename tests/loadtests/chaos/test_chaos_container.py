"""Faults of a real Triton in a real container, made and undone from the host."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from containers import TritonContainer, require_containers
from fault_cycles import in_effect, kind_of
from pydantic import TypeAdapter
from requirements import require, require_root
from waiting import wait_until

from loadtests.chaos import experiment
from loadtests.chaos.faults import FreezeServer, FreezeStub, KillServer, KillStub
from loadtests.chaos.measuring.findings import findings
from loadtests.chaos.primitives.backends import Stub
from loadtests.chaos.running.repetition import RunOptions, run
from loadtests.chaos.targets.chaos_target import AnyTarget

if TYPE_CHECKING:
    from collections.abc import Generator

    from loadtests.chaos.faults.fault import Fault
    from loadtests.chaos.site import Site

TARGETS: TypeAdapter[Any] = TypeAdapter(AnyTarget)
MODEL = "digits_fp32"
DEMO = Path(__file__).parents[3] / "deploy" / "models"


@pytest.fixture(params=[False, True], ids=["first process", "below an entry point"])
def container(
    request: pytest.FixtureRequest, tmp_path: Path, triton_environment: Path
) -> Generator[TritonContainer]:
    require_root("a container")
    require("runc")
    require_containers(tmp_path / "empty")
    repository = tmp_path / "models"
    shutil.copytree(DEMO / MODEL, repository / MODEL)
    with TritonContainer(
        tmp_path / "bundle", repository, triton_environment, init=request.param
    ) as found:
        yield found


def described(container: TritonContainer) -> dict[str, Any]:
    return {
        "kind": "container",
        "container": container.name,
        "runtime": "runc",
        "grpc": container.grpc,
        "http": container.http,
        "metrics": container.metrics,
    }


def site_of(container: TritonContainer) -> Site:
    return TARGETS.validate_python(described(container)).site()


def test_faults_of_its_processes_are_injected_and_undone(
    container: TritonContainer,
) -> None:
    site = site_of(container)
    (stub,) = site.stubs(MODEL)
    seen = Stub.of(stub.pid)
    server = site.server()
    assert seen is not None
    assert server is not None
    # In there it has another pid, by which its backend processes know it.
    assert seen.server.pid != server.pid
    faults: tuple[Fault, ...] = (
        FreezeServer(),
        FreezeStub(model=MODEL),
        KillStub(model=MODEL),
    )
    for fault in faults:
        with in_effect(fault, site):
            pass
        wait_until(container.ready, f"ready after {kind_of(fault)}")
        assert site.server() == server
    (again,) = site.stubs(MODEL)
    assert again != stub
    with in_effect(KillServer(), site):
        assert site.server() is None
    assert not again.alive


@pytest.mark.slow
@pytest.mark.parametrize("container", [False], indirect=True)
def test_an_experiment_on_it_holds(container: TritonContainer, tmp_path: Path) -> None:
    document = yaml.safe_load((experiment.FOLDER / "stub-killed.yaml").read_text())
    (extension,) = document["extensions"]
    extension["target"] = described(container) | {"sidecar": {}}
    extension["load"]["models"] = [{"model": MODEL}]
    extension["timing"] |= {"before_seconds": 3, "after_seconds": 6}
    extension["recovery"] |= {"hold_seconds": 2.0}
    # Nobody is in a hurry here: other tests run beside.
    extension["detect"] = [
        {"metric": wanted["metric"], "within_seconds": 10}
        for wanted in extension["detect"]
    ]
    loaded = experiment.parse(document, "stub-killed")
    allowed = (f"container:{container.name}",)
    (found,) = run(loaded, RunOptions(allow=allowed, state=tmp_path / "state"))
    judged = findings(found)
    assert found.status == "completed", found.problems
    assert found.leftovers == ()
    (fault,) = judged.faults
    assert fault.recovery is not None
    assert fault.recovery.state == "recovered"
    assert fault.signals[0].in_time is True
