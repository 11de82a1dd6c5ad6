"""Whoever ends a runner, at whichever point of a fault: it is undone, and nothing is left."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chaos_site import MODEL, STREAMING_MODEL, Deployment, left_on_host
from killed_runner import Nursery

from exporter.triton.embedded import EmbeddedTriton
from loadtests.chaos.faults import FAULTS
from loadtests.chaos.network.proxy_client import fault_proxy

if TYPE_CHECKING:
    from collections.abc import Generator

    from killed_runner import Ended

pytestmark = pytest.mark.triton

MODELS = Path(__file__).parents[3] / "deploy" / "models"
QUICK = ({"kind": "freeze_server"}, {"kind": "kill_stub"})
"""One whose undo is a signal, and one whose undo asks the server."""
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
EVERY = tuple({"kind": kind} for kind in sorted(FAULTS))
EARLY_POINTS = 5
LATE_POINTS = 20
_DEADLINE_SECONDS = 20.0


def name_of(fault: dict[str, Any]) -> str:
    return " ".join(map(str, fault.values()))


@pytest.fixture(scope="module")
def deployment(
    triton_environment: Path, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Deployment]:
    folder = tmp_path_factory.mktemp("deployment")
    for model in (MODEL, STREAMING_MODEL):
        shutil.copytree(MODELS / model, folder / "models" / model)
    triton = EmbeddedTriton(
        folder / "models",
        environment=triton_environment,
        model_control="explicit",
        arguments=(f"--load-model={MODEL}", f"--load-model={STREAMING_MODEL}"),
        log=folder / "triton.log",
    )
    with triton, contextlib.ExitStack() as beside:
        proxy = beside.enter_context(fault_proxy(grpc=triton.grpc, http=triton.http))
        found = Deployment(triton, proxy, folder)
        beside.callback(found.close)
        found.remember()
        yield found


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Generator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("nursery")) as found:
        yield found


def spread(ended: Ended) -> list[int]:
    """Points of a run: a few before the undo record is on disk, twenty from there on."""
    first, rest = ended.unrecorded, ended.points - ended.unrecorded
    assert first >= EARLY_POINTS
    assert rest >= LATE_POINTS
    early = [1 + n * first // EARLY_POINTS for n in range(EARLY_POINTS)]
    late = [1 + n * rest // LATE_POINTS for n in range(LATE_POINTS)]
    return [*early, *(first + place for place in late)]


class Undoing:
    """Runs a fault in runners that are ended, and sees what becomes of it."""

    def __init__(
        self,
        fault: dict[str, Any],
        deployment: Deployment,
        nursery: Nursery,
        state: Path,
        *,
        quick: bool,
    ) -> None:
        self.name = name_of(fault)
        self._quick = quick
        self._kind = FAULTS[fault["kind"]]
        self._fault = fault
        if "model" in self._kind.model_fields:
            streams = fault["kind"] in {"stalled_stream", "cache_storm"}
            self._fault = {**fault, "model": STREAMING_MODEL if streams else MODEL}
        self._deployment = deployment
        self._nursery = nursery
        self._state = state
        self.took: dict[str, list[float]] = {}

    def run(self, point: int = 0, number: signal.Signals = signal.SIGKILL) -> Ended:
        return self._nursery.run(
            self._fault,
            self._deployment.site,
            self._state,
            point=point,
            number=number,
            quick=self._quick,
        )

    def whole(self) -> Ended:
        """A run that nobody ends; skips where this machine cannot do it."""
        self._deployment.mend()
        ended = self.run()
        assert ended.refused == ""
        self._settled(ended, time.monotonic())
        return ended

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
        return [what for r in records for what in self._kind.residue(r)]


@pytest.fixture
def undoing(
    request: pytest.FixtureRequest,
    deployment: Deployment,
    nursery: Nursery,
    tmp_path: Path,
) -> Generator[Undoing]:
    # Where there are many runners, most of their start is saved.
    quick = request.param not in QUICK
    found = Undoing(request.param, deployment, nursery, tmp_path, quick=quick)
    yield found
    for number, took in sorted(found.took.items()):
        print(
            f"{found.name}: {number} at {len(took)} points: undone after "
            f"{sorted(took)[len(took) // 2]:.2f} s, at most {max(took):.2f} s"
        )


@pytest.mark.parametrize("undoing", QUICK, indirect=True, ids=name_of)
def test_a_runner_that_is_ended_leaves_nothing(undoing: Undoing) -> None:
    points = undoing.whole().points
    kill, term, interrupt = SIGNALS
    for share, number in ((0.5, kill), (0.6, term), (0.7, interrupt), (0.8, kill)):
        undoing.end_at(max(int(points * share), 1), number)


@pytest.mark.parametrize("undoing", EVERY, indirect=True, ids=name_of)
def test_a_runner_that_is_killed_in_the_middle_leaves_nothing(undoing: Undoing) -> None:
    ended = undoing.whole()
    middle = (ended.unrecorded + ended.points) // 2
    undoing.end_at(middle, signal.SIGKILL)


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("undoing", EVERY, indirect=True, ids=name_of)
def test_a_runner_that_is_ended_at_any_point_leaves_nothing(undoing: Undoing) -> None:
    places = spread(undoing.whole())
    for number in SIGNALS:
        for place in places:
            undoing.end_at(place, number)
