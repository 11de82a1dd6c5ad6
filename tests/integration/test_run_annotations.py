"""A run that tells the sidecar of itself is a mark on every dashboard, and on the runs'."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import promql
from fake_triton import FakeModel, FakeTriton
from monitoring import Job

from loadtests.announce import AnnouncedRun

BOARDS = Path(__file__).parents[2] / "grafana" / "dashboards"
RUN = "triton_run_info"
MARKED_AS = {"load": "Load runs", "capacity": "Load runs", "chaos": "Chaos runs"}


def annotations() -> dict[str, dict[str, str]]:
    """The annotation queries of each dashboard by their names."""
    found = {}
    for path in sorted(BOARDS.glob("*.json")):
        marks = json.loads(path.read_text())["annotations"]["list"]
        found[path.stem] = {m["name"]: promql.filled_in(m["expr"]) for m in marks}
    return found


def panel_queries(title: str) -> list[str]:
    board = json.loads((BOARDS / "tritonwatch-runs.json").read_text())
    [panel] = [panel for panel in board["panels"] if panel["title"] == title]
    return [promql.filled_in(target["expr"]) for target in panel["targets"]]


def test_a_run_is_a_mark_while_it_goes_on(
    settings, start_sidecar, start_prometheus
) -> None:
    with FakeTriton([FakeModel("m")]) as fake, contextlib.ExitStack() as going_on:
        config = settings(fake, probes=[])
        config["listen"]["tap"] = {"port": 0}
        config["collectors"].append({"kind": "runs", "interval_seconds": 0.5})
        sidecar = start_sidecar(config)
        tap = f"http://127.0.0.1:{tap_port(sidecar.log)}"
        kinds = {k: AnnouncedRun(k, "evening", "spike", [tap]) for k in MARKED_AS}
        runs = kinds.values()
        prometheus = start_prometheus(Job([sidecar.port]))
        for run in runs:
            going_on.enter_context(run.announced())
        for phase in ("calm", "crowd"):
            for run in runs:
                run.enter(phase)
            prometheus.wait(f'count({RUN}) == 3 == count({RUN}{{phase="{phase}"}})')
        expected: dict[str, set[tuple[str, ...]]] = {}
        for kind, run in kinds.items():
            labels = (kind, "crowd", "spike", run.name)
            expected.setdefault(MARKED_AS[kind], set()).add(labels)
        for board, marks in annotations().items():
            for name, wanted in expected.items():
                found = [metric for metric, _ in prometheus.values(marks[name])]
                labels = {tuple(v for _, v in sorted(m.items())) for m in found}
                assert labels == wanted, board
        for title in ("Active runs", "Phases of runs"):
            for query in panel_queries(title):
                assert len(prometheus.query(query)) == 3, title
        going_on.close()
        assert [run.problems for run in runs] == [[], [], []]
        prometheus.wait(f"absent({RUN})")
        # Over a run's time each phase is a series of its own: a region each.
        regions = prometheus.query(f"count_over_time({RUN}[5m])")
        found = {(r["metric"]["kind"], r["metric"]["phase"]) for r in regions}
        assert found == {(k, phase) for k in MARKED_AS for phase in ("calm", "crowd")}


def tap_port(log: str) -> int:
    return int(re.search(r"event=tap_listening address=\S*:(\d+)", log)[1])
