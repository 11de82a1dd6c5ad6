"""Whoever ends a runner, at whichever point of a fault: it is undone, and nothing is left."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chaos_site import MODEL, Deployment, left_on_host
from killed_runner import Nursery

from exporter.triton.embedded import EmbeddedTriton
from loadtests.chaos.faults import FAULTS
from loadtests.chaos.network.proxy_process import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Generator

    from killed_runner import Ended

pytestmark = pytest.mark.triton

MODELS = Path(__file__).parents[3] / "deploy" / "models"
QUICK = ("freeze_server", "kill_stub")
"""One whose undo is a signal, and one whose undo asks the server."""
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
POINTS = 20
_DEADLINE_SECONDS = 20.0


@pytest.fixture(scope="module")
def deployment(
    triton_environment: Path, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Deployment]:
    folder = tmp_path_factory.mktemp("deployment")
    (folder / "traces").mkdir()
    shutil.copytree(MODELS / MODEL, folder / "models" / MODEL)
    triton = EmbeddedTriton(
        folder / "models",
        environment=triton_environment,
        model_control="explicit",
        arguments=(f"--load-model={MODEL}",),
        log=folder / "triton.log",
    )
    with triton, FaultProxy(grpc=triton.grpc, http=triton.http) as proxy:
        found = Deployment(triton, proxy, folder)
        try:
            found.remember()
            yield found
        finally:
            found.sidecar.close()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Generator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("nursery")) as found:
        yield found


def settings_of(kind: str) -> dict[str, Any]:
    """A short and small fault of this kind; its model is one that is loaded."""
    fault: dict[str, Any] = {"kind": kind}
    if "model" in FAULTS[kind].model_fields:
        fault["model"] = MODEL
    return fault


class Undoing:
    """Runs a fault in runners that are ended, and sees what becomes of it."""

    def __init__(
        self, kind: str, deployment: Deployment, nursery: Nursery, state: Path
    ) -> None:
        self.kind = kind
        self._deployment = deployment
        self._nursery = nursery
        self._state = state
        self.took: dict[str, list[float]] = {}

    def run(self, point: int = 0, number: signal.Signals = signal.SIGKILL) -> Ended:
        return self._nursery.run(
            settings_of(self.kind),
            self._deployment.site,
            self._state,
            point=point,
            number=number,
        )

    def points(self) -> int:
        """How many a whole run has; skips where it cannot be injected here."""
        self._deployment.mend()
        ended = self.run()
        if ended.refused:
            pytest.skip(f"{self.kind}: {ended.refused}")
        self._settled(ended, time.monotonic())
        return ended.points

    def end_at(self, point: int, number: signal.Signals) -> None:
        self._deployment.mend()
        ended = self.run(point, number)
        assert ended.killed_at is not None, "it came to its end before that point"
        took = self._settled(ended, ended.killed_at)
        self.took.setdefault(number.name, []).append(took)

    def _settled(self, ended: Ended, since: float) -> float:
        """Wait for the undo's end, and look at what is left; how long it took."""
        journal = self._state / "killed.undo.jsonl"
        while journal.exists():
            late = time.monotonic() > since + _DEADLINE_SECONDS
            assert not late, journal.read_text("utf-8", "replace")
            time.sleep(0.005)
        took = time.monotonic() - since
        assert self._residue(ended.journal) == []
        assert left_on_host(ended.journal) == []
        assert self._deployment.wrong() == []
        return took

    def _residue(self, journal: str) -> list[str]:
        lines = [json.loads(line) for line in journal.splitlines()]
        records = [line["record"] for line in lines if "open" in line]
        return [what for r in records for what in FAULTS[self.kind].residue(r)]


@pytest.fixture
def undoing(
    request: pytest.FixtureRequest,
    deployment: Deployment,
    nursery: Nursery,
    tmp_path: Path,
) -> Generator[Undoing]:
    found = Undoing(request.param, deployment, nursery, tmp_path)
    yield found
    for number, took in sorted(found.took.items()):
        print(
            f"{found.kind}: {number} at {len(took)} points: undone after "
            f"{sorted(took)[len(took) // 2]:.2f} s, at most {max(took):.2f} s"
        )


@pytest.mark.parametrize("undoing", QUICK, indirect=True)
def test_a_runner_that_is_ended_leaves_nothing(undoing: Undoing) -> None:
    points = undoing.points()
    kill, term, interrupt = SIGNALS
    for share, number in ((0.5, kill), (0.6, term), (0.7, interrupt), (0.8, kill)):
        undoing.end_at(max(int(points * share), 1), number)


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("undoing", sorted(FAULTS), indirect=True)
def test_a_runner_that_is_ended_at_any_point_leaves_nothing(undoing: Undoing) -> None:
    points = undoing.points()
    assert points >= POINTS
    for number in SIGNALS:
        for place in range(POINTS):
            undoing.end_at(1 + place * (points - 1) // POINTS, number)
