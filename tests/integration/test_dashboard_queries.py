"""Every query of every panel and rule, on a real Prometheus that scrapes the real demo."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import promql
import pytest
import yaml
from monitoring import Job, free_port

from grafana import build

pytestmark = [pytest.mark.triton, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
COMMAND = str(Path(sys.executable).with_name("tritonwatch"))
RULES = sorted((ROOT / "deploy" / "prometheus" / "rules").glob("*.yaml"))
WATCHED_SECONDS = 75
# Series that this demo does not have, each with its reason. A panel may ask for them.
ABSENT = {
    r"triton_gpu_\w+": "no GPU on this machine, or one that no test may count on",
    r"triton_mig_\w+": "no GPU",
    r"triton_model_(flops|bandwidth|roofline|arithmetic)\w+": "no FLOPs are configured",
    r"triton_power_sensor_(fault|resets_total)": "the modelled sensor has no fault",
    r"triton_estimated_accuracy\w*": "needs golden answers to be calibrated on",
    r"triton_schema_violations_total": "nothing violates the schema",
    r"triton_retrain_\w+": "needs hours of estimated accuracy",
    r"triton_output_\w+": "needs golden answers or a chart over outputs",
    r"triton_feature_drift_threshold_exceeded": "classic thresholds are an option",
    r"tritonwatch_drift_state_saved\w+": "the demo keeps no state",
    r"triton_model_(load|first_inference|cold_inference)_seconds": "nothing is loaded anew",
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo while its data move and a model begins to lie, under a load of ours."""
    port = free_port()
    log = tmp_path_factory.mktemp("demo") / "log"
    with contextlib.ExitStack() as ends:
        going_on(
            ends,
            f"demo --port {port} --drift-after 20"
            " --scenario silent-failure --scenario-after 40",
            log,
        )
        tap = wait_for(log, r"taps +(\S+)\n")
        triton = wait_for(log, r"Triton +grpc (\S+)")
        report_capacity(tap)
        going_on(
            ends,
            f"load run --quiet --address {triton} --model slow --profile poisson"
            f" --rate 5 --duration 600 --sidecar {tap}",
            log.with_name("load.log"),
        )
        yield port


def going_on(ends: contextlib.ExitStack, arguments: str, log: Path) -> None:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [COMMAND, *arguments.split()],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
    ends.callback(process.wait, 30)
    ends.callback(process.send_signal, signal.SIGTERM)


def wait_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + 90
    while not (found := re.search(pattern, log.read_text("utf-8"))):
        assert time.monotonic() < deadline, log.read_text("utf-8")
        time.sleep(0.2)
    return found[1]


def report_capacity(tap: str) -> None:
    """As a search would, so that there is headroom to be shown."""
    found = {"model": "slow", "slo": "p99<60ms", "requests_per_second": 180}
    body = json.dumps({**found, "low": 170, "high": 190}).encode()
    request = urllib.request.Request(f"{tap}/v1/capacity", body)
    urllib.request.urlopen(request, timeout=5).close()


def panels():
    for name, board in sorted(build.documents().items()):
        for mark in board["annotations"]["list"]:
            # Nothing is broken by an experiment here: of runs only the load goes on.
            if mark["name"] == "Load runs":
                yield f"{name}/{mark['name']}", {"targets": [mark]}
        for panel in board["panels"]:
            if panel["type"] != "row":
                yield f"{name}/{panel['title']}", panel


def excused(expression: str) -> bool:
    return any(
        re.fullmatch(pattern, selector.metric.removesuffix("_bucket"))
        for selector in promql.selectors(expression)
        for pattern in ABSENT
    )


def test_every_panel_shows_something_and_every_rule_can_be_run(
    demo, start_prometheus
) -> None:
    rules = {file.name: file.read_text("utf-8") for file in RULES}
    server = start_prometheus(Job([demo]), rules=rules, evaluation_interval="5s")
    server.wait("up == 1")
    time.sleep(WATCHED_SECONDS)
    empty = []
    for name, panel in panels():
        expressions = [promql.filled_in(t["expr"]) for t in panel["targets"]]
        # A panel is empty when none of its queries says anything.
        if any(server.query(expression) for expression in expressions):
            continue
        if not all(excused(expression) for expression in expressions):
            empty.append((name, expressions))
    assert [name for name, _ in empty] == [], empty
    found = server.get("rules")
    for group in found["groups"]:
        for rule in group["rules"]:
            assert rule["health"] == "ok", (rule["name"], rule.get("lastError"))
    named = {r["name"] for g in found["groups"] for r in g["rules"]}
    for text in rules.values():
        for group in yaml.safe_load(text)["groups"]:
            for rule in group["rules"]:
                assert rule.get("alert", rule.get("record")) in named


def test_every_excuse_is_still_needed(demo) -> None:
    """A series that the demo has by now is no excuse any more."""
    url = f"http://127.0.0.1:{demo}/api/v1/status"
    with urllib.request.urlopen(url, timeout=5) as reply:
        shown = json.load(reply)["series"]
    for pattern, reason in ABSENT.items():
        assert not any(re.fullmatch(pattern, name) for name in shown), reason
