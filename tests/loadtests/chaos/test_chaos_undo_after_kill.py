"""Whoever ends a runner, at whichever point of a fault: it is undone, and nothing is left."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from killed_runner import ended_runner, journal_of
from sidecars import SidecarProcess
from waiting import wait_until

from exporter.triton.embedded import EmbeddedTriton
from loadtests.chaos.faults import FAULTS
from loadtests.chaos.network.proxy_client import fault_proxy
from loadtests.chaos.primitives.backends import stubs_of
from loadtests.chaos.primitives.model_control import load, states
from loadtests.chaos.primitives.process_refs import ProcessRef, started_with
from loadtests.chaos.site import Site

if TYPE_CHECKING:
    from collections.abc import Generator

    from killed_runner import Ended

    from loadtests.chaos.faults.fault import Fault
    from loadtests.chaos.site import FaultProxy

pytestmark = pytest.mark.triton

DEMO = Path(__file__).parents[3] / "deploy" / "models"
MODEL = "digits_fp32"
STREAMING_MODEL = "llm"
STREAMING = {"stalled_stream", "cache_storm"}
TOKEN = re.compile(r"tw[0-9a-f]{10}")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
EARLY_POINTS = 5
LATE_POINTS = 20


class Deployment:
    """Everything that a fault may break, and how to bring back what one ended."""

    def __init__(self, triton: EmbeddedTriton, proxy: FaultProxy, folder: Path) -> None:
        self._triton = triton
        self._proxy = proxy
        self._folder = folder
        self._files = self._model_files()
        self.sidecar = self._start_sidecar()

    def site(self) -> Site:
        """The deployment, with whatever a fault has ended for good running again."""
        self._triton.start()
        for model in (MODEL, STREAMING_MODEL):
            if states(self._triton.http).get(model) != "READY":
                load(self._triton.http, model)
        if not self.sidecar.running:
            self.sidecar = self._start_sidecar()
        return Site(
            *("embedded", self._triton.grpc, self._triton.http),
            repository=self._triton.repository,
            proxy=self._proxy,
            sidecar_url=f"http://127.0.0.1:{self.sidecar.port}",
        )

    def wrong(self) -> list[str]:
        """Return what the fault has left behind, as seen from outside."""
        found = []
        server = ProcessRef.of(self._triton.pid)
        if server is not None and self._triton.running:
            processes = (server, *stubs_of(server))
            stopped = [p.pid for p in processes if p.state in {"T", "t"}]
            found += [f"process {pid} is stopped" for pid in stopped]
        if (files := self._model_files()) != self._files:
            found.append(f"files of the models: {files}; before: {self._files}")
        return found

    def _model_files(self) -> list[str]:
        return sorted(path.name for path in self._triton.repository.rglob("*"))

    def _start_sidecar(self) -> SidecarProcess:
        config = {
            "target": {"grpc": self._triton.grpc, "http": self._triton.http},
            "listen": {"address": "127.0.0.1", "port": 0},
            "probes": [],
            "power": None,
        }
        sidecar = SidecarProcess(config, self._folder / "sidecar")
        sidecar.wait_listening()
        return sidecar


@pytest.fixture(scope="module")
def deployment(
    triton_environment: Path, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Deployment]:
    folder = tmp_path_factory.mktemp("deployment")
    for model in (MODEL, STREAMING_MODEL):
        shutil.copytree(DEMO / model, folder / "models" / model)
    triton = EmbeddedTriton(
        folder / "models",
        environment=triton_environment,
        model_control="explicit",
        arguments=(f"--load-model={MODEL}", f"--load-model={STREAMING_MODEL}"),
        log=folder / "triton.log",
    )
    with triton, fault_proxy(grpc=triton.grpc, http=triton.http) as proxy:
        found = Deployment(triton, proxy, folder)
        yield found
        found.sidecar.close()


class Undoing:
    """Runs a fault in runners that are ended, and sees what becomes of it."""

    def __init__(self, kind: str, deployment: Deployment, state: Path) -> None:
        given = {"model": STREAMING_MODEL if kind in STREAMING else MODEL}
        fields = FAULTS[kind].model_fields
        self._fault: Fault = FAULTS[kind](**given if "model" in fields else {})
        self._deployment = deployment
        self._state = state

    def whole(self) -> Ended:
        """A run that nobody ends."""
        return self._settled(ended_runner(*self._where()))

    def end_at(self, point: int, number: signal.Signals) -> None:
        ended = self._settled(ended_runner(*self._where(), point, number))
        assert ended.early, "it came to its end before that point"

    def _where(self) -> tuple[Fault, Site, Path]:
        return self._fault, self._deployment.site(), self._state

    def _settled(self, ended: Ended) -> Ended:
        """Wait for the undo's end, and look at what is left."""
        journal = journal_of(self._state)
        wait_until(lambda: not journal.exists(), lambda: f"left: {journal.read_text()}")
        lines = [json.loads(line) for line in ended.journal.splitlines()]
        records = [line["record"] for line in lines if "open" in line]
        assert [what for r in records for what in self._fault.residue(r)] == []
        tokens = set(TOKEN.findall(ended.journal))
        assert [p.pid for token in tokens for p in started_with(token)] == []
        assert self._deployment.wrong() == []
        return ended


@pytest.fixture(params=sorted(FAULTS))
def undoing(
    request: pytest.FixtureRequest, deployment: Deployment, tmp_path: Path
) -> Undoing:
    return Undoing(request.param, deployment, tmp_path)


def test_a_runner_that_is_killed_in_the_middle_leaves_nothing(undoing: Undoing) -> None:
    ended = undoing.whole()
    undoing.end_at((ended.unrecorded + ended.points) // 2, signal.SIGKILL)


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", SIGNALS)
def test_a_runner_that_is_ended_at_any_point_leaves_nothing(
    undoing: Undoing, number: signal.Signals
) -> None:
    """A few points before the undo record is on disk, twenty from there on."""
    ended = undoing.whole()
    first, rest = ended.unrecorded, ended.points - ended.unrecorded
    assert first >= EARLY_POINTS
    assert rest >= LATE_POINTS
    for place in range(EARLY_POINTS):
        undoing.end_at(1 + place * first // EARLY_POINTS, number)
    for place in range(LATE_POINTS):
        undoing.end_at(first + 1 + place * rest // LATE_POINTS, number)
