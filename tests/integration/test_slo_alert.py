"""From a broken objective on the real Triton to the page on the webhook, and back."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import yaml
from breakable_slo import SLOS, Load, tracing_arguments
from monitoring import Alertmanager, Job, free_port

from exporter.config.configuration import parse
from exporter.features.slo.objectives import expanded
from exporter.features.slo.slo_rules import rules_file
from exporter.triton.embedded import EmbeddedTriton

pytestmark = pytest.mark.triton

MODELS = Path(__file__).parents[1] / "data" / "models"


def test_a_broken_latency_objective_pages_and_resolves_when_it_heals(
    settings, start_sidecar, webhook, start_prometheus, tmp_path
) -> None:
    tap_port = free_port()
    arguments = tracing_arguments(tap_port)
    repository = tmp_path / "models"
    shutil.copytree(MODELS, repository)
    objectives = expanded(parse(yaml.safe_dump({"slos": SLOS}).encode(), "s", {}).slos)
    with (
        EmbeddedTriton(repository, arguments=arguments) as triton,
        Alertmanager(tmp_path, webhook) as alertmanager,
    ):
        config = settings(triton, slos=SLOS)
        config["collectors"].append({"kind": "traces", "interval_seconds": 0.5})
        config["listen"]["tap"] = {"port": tap_port}
        sidecar = start_sidecar(config)
        start_prometheus(
            Job([sidecar.port]),
            rules={"rules.yml": rules_file(objectives)},
            alertmanager=alertmanager,
        )
        with Load(triton.grpc) as load:
            time.sleep(6)
            assert not webhook.alerts
            load.delay_ms = 200
            page = webhook.wait("firing", 60, severity="page")
            assert page["labels"]["alertname"] == "TritonSLOBurnPage"
            assert page["labels"]["slo"] == "sleepy-latency"
            load.delay_ms, load.pause_seconds = 1, 0.01
            webhook.wait("resolved", 90, severity="page")
