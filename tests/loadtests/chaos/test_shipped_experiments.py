"""The shipped experiments in short forms on the real Triton, and weaknesses they find."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from requirements import require
from waiting import patience

from loadtests.chaos import experiment
from loadtests.chaos.faults import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.triton

COMMAND = str(Path(sys.executable).with_name("tritonwatch"))
HELD, FINDING, INVALID = 0, 1, 3
AT_ONCE = 2
TRIES = 3
"""Of runs that say themselves that the machine was too busy to tell anything."""
SHIPPED = {
    path.stem: yaml.safe_load(path.read_text("utf-8")) for path in experiment.names()
}
# Those that wait for an alert take minutes.
LONG = {name for name in SHIPPED if name.endswith("-paged")}
WEAK = {
    "server-killed-nobody-restarts": "did not recover",
}
"""What a deployment like the embedded one cannot hold, and in which words it is told."""
LIES = {"model-answers-nan", "model-lies"}
QUICK = (
    "server-frozen",
    "server-killed",
    "server-killed-nobody-restarts",
    "stub-killed",
    "model-lies",
    "partition",
    "sidecar-killed",
)
REST = sorted(set(SHIPPED) - LONG - set(QUICK))


def ours(document: dict[str, Any]) -> dict[str, Any]:
    """The extension of an experiment."""
    (found,) = (e for e in document["extensions"] if e["name"] == "tritonwatch")
    return found


def short(name: str) -> dict[str, Any]:
    """The experiment with less time for the fault and after it."""
    document = copy.deepcopy(SHIPPED[name])
    ours(document)["timing"] |= {"after_seconds": 9}
    ours(document)["recovery"] |= {"hold_seconds": 3.0}
    if name in QUICK:
        # Their faults end answers. A busy machine only delays them, by 0.1 s and more.
        ours(document)["recovery"] |= {"latency_limit_seconds": 0.5}
    for step in document["method"]:
        step["pauses"]["after"] = min(step["pauses"]["after"], 4)
        if step["name"] == "kill server":
            # A busy machine starts a server seconds later: users may lose more.
            (served,) = document["steady-state-hypothesis"]["probes"]
            served["tolerance"]["range"][0] /= 2
    for wanted in ours(document).get("detect", ()):
        # A few run side by side here, and each has its look later for that.
        wanted["within_seconds"] += 3
    return document


@dataclass(frozen=True)
class Ended:
    """A run of the command that ended."""

    code: int
    said: str
    journal: dict[str, Any] | None


@pytest.fixture(scope="module")
def run(
    triton_environment: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, dict[str, Any]], Future[Ended]]]:
    """Run a document under a name, a few at a time; the same name is run once."""
    folder = tmp_path_factory.mktemp("experiments")
    for data in experiment.FOLDER.glob("*.npz"):
        shutil.copy(data, folder)
    started: dict[str, Future[Ended]] = {}

    def once(name: str, document: dict[str, Any]) -> Ended:
        file = folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document), "utf-8")
        for _ in range(TRIES):
            ended = tried(name, file)
            if ended.code != INVALID:
                break
        return ended

    def tried(name: str, file: Path) -> Ended:
        ended = subprocess.run(
            [
                *(COMMAND, "chaos", "run", str(file), "--quiet", "--allow", "host"),
                *("--state", str(folder / "state"), "--json", str(folder)),
            ],
            capture_output=True,
            text=True,
            timeout=patience(180),
            check=False,
        )
        journal = folder / f"{name}.json"
        found = json.loads(journal.read_text("utf-8")) if journal.is_file() else None
        return Ended(ended.returncode, ended.stdout + ended.stderr, found)

    with ThreadPoolExecutor(AT_ONCE) as pool:

        def submit(name: str, document: dict[str, Any]) -> Future[Ended]:
            if name not in started:
                started[name] = pool.submit(once, name, document)
            return started[name]

        yield submit
        pool.shutdown(cancel_futures=True)


def skip_where_nothing_is_told(ended: Ended) -> None:
    if ended.code == INVALID:
        assert "left behind" not in ended.said
        # Any other reason may be a fault that has no effect, or that nobody watched.
        why = re.search(r"the sender(?: came too late|'s own p99 delay).*", ended.said)
        assert why is not None, ended.said
        pytest.skip(f"{TRIES} runs told nothing, since this machine was busy: {why[0]}")


def assert_ended(name: str, ended: Ended) -> None:
    skip_where_nothing_is_told(ended)
    if name in WEAK:
        assert ended.code == FINDING, ended.said
        assert WEAK[name] in ended.said
    else:
        assert ended.code == HELD, ended.said
    if name in LIES:
        wrong = re.search(r"^ +during .* (\d+)$", ended.said, re.MULTILINE)
        assert wrong is not None, ended.said
        assert int(wrong[1]) > 0, ended.said


def test_every_kind_of_fault_has_an_experiment():
    faults = {
        step["provider"]["arguments"]["fault"]["kind"]
        for document in SHIPPED.values()
        for step in document["method"]
    }
    assert faults == set(FAULTS)
    assert len(SHIPPED) >= 18


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in REST)]
)
def test_short_form(name, run):
    for other in QUICK if name in QUICK else REST:
        future = run(other, short(other))
        if other == name:
            mine = future
    assert_ended(name, mine.result())


@pytest.mark.slow
def test_an_alert_of_a_real_prometheus_fires_in_time(run):
    require("prometheus")
    ended = run("stub-killed-paged", SHIPPED["stub-killed-paged"]).result()
    skip_where_nothing_is_told(ended)
    assert ended.code == HELD, ended.said
    assert "TritonReadinessLie" in json.dumps(ended.journal)


@pytest.mark.slow
def test_a_minute_of_random_faults(triton_environment, tmp_path):
    ended = subprocess.run(
        [
            *(COMMAND, "chaos", "soak", "--minutes", "1", "--seed", "7", "--quiet"),
            *("--state", str(tmp_path), "--json", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=patience(400),
        check=False,
    )
    assert "soak:" in ended.stdout, ended.stderr
    assert "left behind" not in ended.stdout
    for grown in ("descriptors more", "did not stay up"):
        assert grown not in ended.stdout
    assert "growth of more than 2 MB an hour is not excluded" in ended.stdout
    if "the sender" not in ended.stdout:
        assert ended.returncode == INVALID, ended.stdout
        served = re.search(r"served again after (\d+) of (\d+)", ended.stdout)
        assert served is not None, ended.stdout
        # On a busy machine the next fault may come before recovery is certain.
        unknown = ended.stdout.count("recovery unknown")
        assert int(served[1]) + unknown == int(served[2]), ended.stdout
