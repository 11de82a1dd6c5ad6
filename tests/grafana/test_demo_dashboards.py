"""What dashboards show of the demo as it is: all but what it does not have, by name."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import promql
import pytest
from monitoring import Job, Prometheus, free_port
from requirements import require
from running_demo import running_demo
from waiting import patience

from grafana import build

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.triton, pytest.mark.slow, pytest.mark.timeout(1500)]

RULES = sorted(
    (Path(__file__).parents[2] / "deploy" / "prometheus" / "rules").glob("*.yaml")
)
DRAWN = {"timeseries", "heatmap"}
GPU = "no GPU is assumed"
RUN = "nobody loads or breaks it: tritonwatch load, tritonwatch chaos"
SEARCH = "nobody searched its capacity: tritonwatch load capacity --sidecar"
LOADED = "no model is loaded anew: --scenario dead-backend, slow-rollout"
PROXY = "no proxy is in front of it whose log could be read"
PUSHED = "no OpenTelemetry collector is there to push to"
# Series that the demo does not have while all is well, each with its reason.
ABSENT = {
    "triton_capacity_found_timestamp_seconds": SEARCH,
    "triton_capacity_headroom_ratio": SEARCH,
    "triton_capacity_requests_per_second": SEARCH,
    "triton_capacity_search_info": SEARCH,
    "triton_client_requests_total": PROXY,
    "triton_gpu_power_watts": GPU,
    "triton_gpu_temperature_celsius": GPU,
    "triton_gpu_throttle_seconds_total": GPU,
    "triton_gpu_xid_last_timestamp_seconds": GPU,
    "triton_model_first_inference_seconds": LOADED,
    "triton_model_flops_utilization_ratio": GPU,
    "triton_model_load_seconds": LOADED,
    "triton_power_sensor_fault": "no sensor fails",
    "triton_retrain_eta_seconds": "no trend to foresee",
    "triton_run_info": RUN,
    "tritonwatch_otlp_consecutive_failures": PUSHED,
    "tritonwatch_otlp_exports_total": PUSHED,
}
# Series that the demo has or has not.
UNSURE = {
    "triton_model_energy_share_error_ratio": "on a busy machine windows may not tell it"
}
# Series that show the p99 only if 368 independent requests, or gaps between responses, came
# into one window; those of the demo depend on each other.
INTERVALS_OF_P99 = {
    "triton_request_latency_ci_seconds",
    "triton_request_first_response_latency_ci_seconds",
    "triton_request_response_gap_latency_seconds",
    "triton_request_response_gap_latency_ci_seconds",
}
PROBES_P99 = re.compile(r'triton_probe_latency_seconds\{.*quantile="0\.99"')
"""Of probes that are sent once a second it needs some minutes."""
OF_GPUS = 'boundary="gpu"'
"""In a query of what no GPU measures here."""
PATIENCE_SECONDS = 120


def questions() -> Iterator[tuple[str, str, bool]]:
    """Each query with the place it has, and whether it is drawn over time."""
    for name, document in sorted(build.documents().items()):
        for panel in document["panels"]:
            for target in panel.get("targets", ()):
                if target["expr"].endswith("> 0"):
                    continue  # a series only while there is something to count
                where = f"{name}/{panel['title']}/{target['refId']}"
                yield where, promql.filled_in(target["expr"]), panel["type"] in DRAWN


def test_every_panel_shows_the_demo_but_for_what_it_does_not_have(
    triton_environment, tmp_path
) -> None:
    require("prometheus")
    port = free_port()
    rules = {file.name: file.read_text("utf-8") for file in RULES}
    since = time.time()
    with (
        running_demo(tmp_path / "log", "--port", str(port), "--scenario-after", "9999"),
        Prometheus(
            tmp_path, Job([port]), rules=rules, evaluation_interval="5s"
        ) as server,
    ):
        excused = ABSENT.keys() | UNSURE.keys() | INTERVALS_OF_P99
        asked = [
            question
            for question in questions()
            if not _metrics(question[1]) & excused
            and not PROBES_P99.search(question[1])
            and OF_GPUS not in question[1]
        ]
        deadline = time.monotonic() + patience(PATIENCE_SECONDS)
        while asked and time.monotonic() < deadline:
            asked = [q for q in asked if not _shows(server, since, q)]
            time.sleep(2)
        assert [where for where, *_ in asked] == []
        # What is there after all is no longer absent.
        needless = [name for name in ABSENT if server.query(name)]
        assert needless == []


def _metrics(expression: str) -> set[str]:
    return {selected.metric for selected in promql.selectors(expression)}


def _shows(server: Prometheus, since: float, question: tuple[str, str, bool]) -> bool:
    _, expression, over_time = question
    if not over_time:
        return bool(server.query(expression))
    window = {"start": str(since), "end": str(time.time()), "step": "2"}
    return bool(server.get("query_range", query=expression, **window)["result"])
