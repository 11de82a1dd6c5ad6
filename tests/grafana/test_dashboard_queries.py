"""Every query of every panel and rule, on a real Prometheus that scrapes a real scene."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import fake_nvml
import promql
import pytest
import yaml
from dashboard_scene import (
    INTERVALS_OF_P99,
    Production,
    Running,
    access_log,
    chaos,
    everything,
    experiment,
    load,
    report_capacity,
    repository,
)
from fake_nvml import GPU_IS_LOST, board
from monitoring import Job, Prometheus, free_port
from parts import require
from sidecars import SidecarProcess
from waiting import patience

from exporter.triton.embedded import EmbeddedTriton
from grafana import build

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

pytestmark = [pytest.mark.triton, pytest.mark.timeout(1500)]

RULES = sorted(
    (Path(__file__).parents[2] / "deploy" / "prometheus" / "rules").glob("*.yaml")
)
WATCHED_SECONDS = 60
# Panels that are drawn over time; the others show what is true now.
DRAWN = {"timeseries", "heatmap"}
# Series that this scene does not have, each with its reason. A panel may ask for them.
ABSENT = {
    "triton_model_flops_utilization_ratio": "GPU only: no model is on one here",
    "triton_retrain_eta_seconds": "the patients grow older until all are old: no date",
    "triton_model_energy_share_error_ratio": "20 windows and more, if they tell anything",
    "triton_backend_preemptions_total": "the demo's language model puts nobody out",
    "triton_backend_prefix_cache_hits_total": "the demo's language model has no such cache",
}
# A busy machine needs longer until the rarest numbers (a p99) are known.
PATIENCE_SECONDS = 180


@dataclass(frozen=True)
class Scene:
    """A Prometheus, and since when it has watched."""

    prometheus: Prometheus
    since: float

    def shows(self, expression: str, *, over_time: bool) -> bool:
        """Whether there is anything to be seen."""
        if not over_time:
            return bool(self.prometheus.query(expression))
        now = time.time()
        found = self.prometheus.get(
            "query_range",
            query=expression,
            start=str(self.since),
            end=str(now),
            step="1",
        )
        return bool(found["result"])


@pytest.fixture(scope="module")
def demo(triton_environment, tmp_path_factory) -> Generator[tuple[int, dict[str, str]]]:
    """The demo while its data move and a model begins to lie; its addresses."""
    port = free_port()
    log = tmp_path_factory.mktemp("demo") / "log"
    arguments = f"--port {port} --drift-after 20 --scenario silent-failure"
    with Running(
        log, "demo", *arguments.split(), "--scenario-after", str(WATCHED_SECONDS // 2)
    ) as running:
        tap = running.said(r"taps +(\S+)\n")
        grpc, http = (
            running.said(r"Triton +grpc (\S+)"),
            running.said(r"Triton .* http://(\S+)  metrics"),
        )
        yield port, {"grpc": grpc, "http": http, "tap": tap}


@pytest.fixture(scope="module")
def boards(nvml_library, tmp_path_factory) -> Generator[fake_nvml.NvmlScript]:
    """Two GPUs for processes that start from now on."""
    path = tmp_path_factory.mktemp("nvml") / "script"
    script = fake_nvml.NvmlScript(path, {0: board(0), 1: board(1)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent))
        patch.setenv(fake_nvml.SCRIPT_VARIABLE, str(path))
        yield script


@pytest.fixture(scope="module")
def staging(triton_environment, tmp_path_factory) -> Generator[EmbeddedTriton]:
    """A server that loads and unloads models on request."""
    models = repository(tmp_path_factory.mktemp("staging") / "models")
    with EmbeddedTriton(
        models,
        environment=triton_environment,
        model_control="explicit",
        arguments=("--load-model=*",),
    ) as server:
        yield server


@pytest.fixture(scope="module")
def scene(demo, staging, boards, tmp_path_factory) -> Generator[Scene]:
    """Both deployments after a minute of load, drift, lies, faults and chaos."""
    require("prometheus")
    folder = tmp_path_factory.mktemp("scene")
    port, site = demo
    with contextlib.ExitStack() as ends:
        watcher = SidecarProcess(everything(staging, folder), folder / "watcher")
        ends.callback(watcher.close)
        watcher.wait_listening()
        tap = int(re.search(r"event=tap_listening .*:(\d+)", watcher.log)[1])
        rules = {file.name: file.read_text("utf-8") for file in RULES}
        server = Prometheus(
            folder, Job([port, watcher.port]), rules=rules, evaluation_interval="5s"
        )
        ends.callback(server.stop)
        server.wait("count(up == 1) == 2")
        since = time.time()
        report_capacity(site["tap"])
        ends.enter_context(load(site["grpc"], site["tap"], folder / "load.log"))
        log = access_log(folder)
        ends.enter_context(Production(staging, tap, 4 * WATCHED_SECONDS, log))
        runs = [
            ends.enter_context(chaos(file, to))
            for file, to in (
                (
                    experiment(
                        "server-frozen",
                        {"grpc": site["grpc"], "http": site["http"]},
                        f"http://127.0.0.1:{port}",
                        folder,
                    ),
                    site["tap"],
                ),
                (
                    experiment(
                        "model-unloaded",
                        {"grpc": staging.grpc, "http": staging.http},
                        f"http://127.0.0.1:{watcher.port}",
                        folder,
                    ),
                    f"http://127.0.0.1:{tap}",
                ),
            )
        ]
        time.sleep(WATCHED_SECONDS / 3)
        boards.xid(0, 79)
        boards.change(1, lost=GPU_IS_LOST)
        for run in runs:
            # What users saw is another test's; but it must not have been refused.
            assert run.ended(120) in {0, 1, 3}, run.log.read_text("utf-8")
        time.sleep(max(0, since + WATCHED_SECONDS - time.time()))
        yield Scene(server, since)


def questions() -> Iterator[tuple[str, str, bool]]:
    """Each query with the place it has, and whether it is drawn over time."""
    for name, document in sorted(build.documents().items()):
        for mark in document["annotations"]["list"]:
            yield f"{name}/{mark['name']}", promql.filled_in(mark["expr"]), True
        for panel in document["panels"]:
            for target in panel.get("targets", ()):
                where = f"{name}/{panel['title']}/{target['refId']}"
                yield where, promql.filled_in(target["expr"]), panel["type"] in DRAWN


def excused(expression: str) -> bool:
    excuses = ABSENT.keys() | INTERVALS_OF_P99
    return any(s.metric in excuses for s in promql.selectors(expression))


@pytest.mark.slow
def test_every_query_of_every_panel_shows_something(scene) -> None:
    deadline = time.monotonic() + patience(PATIENCE_SECONDS)
    asked = [q for q in questions() if not excused(q[1])]
    while asked and time.monotonic() < deadline:
        asked = [q for q in asked if not scene.shows(q[1], over_time=q[2])]
        time.sleep(2)
    assert [where for where, *_ in asked] == []


@pytest.mark.slow
def test_every_rule_can_be_run(scene) -> None:
    found = scene.prometheus.get("rules")
    for group in found["groups"]:
        for rule in group["rules"]:
            assert rule["health"] == "ok", (rule["name"], rule.get("lastError"))
    named = {r["name"] for g in found["groups"] for r in g["rules"]}
    for file in RULES:
        for group in yaml.safe_load(file.read_text("utf-8"))["groups"]:
            for rule in group["rules"]:
                assert rule.get("alert", rule.get("record")) in named
