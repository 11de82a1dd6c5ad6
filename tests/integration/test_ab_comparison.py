"""A/B from the traces of a real Triton that serves two versions, one of them slowed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from monitoring import free_port
from production import Production
from requirements import require_triton
from traced_tritons import traced, traces_config

from exporter.triton.faulty_model import Fault, set_fault, write_faulty_model
from exporter.triton.protocol_types import InferRequest

if TYPE_CHECKING:
    from collections.abc import Generator

# Fifty windows of two seconds come before any verdict.
pytestmark = [pytest.mark.triton, pytest.mark.slow]

DEMO = Path(__file__).parents[2] / "deploy" / "models"
EFFECT, VERDICT = "triton_comparison_effect", "triton_comparison_verdict"
# Four users together send 80 a second: a Triton that traces every request stands it.
PAUSE_SECONDS = 0.05
SLOWER_SECONDS = 0.005


@pytest.fixture(scope="module")
def split(tmp_path_factory) -> Generator[tuple[object, int]]:
    """`digits`, whose second version is slowed, and `twin`, whose two are the same."""
    require_triton()
    repository = tmp_path_factory.mktemp("split") / "models"
    for name in ("digits", "twin"):
        write_faulty_model(
            repository, name, source=DEMO / "digits_fp32", versions=("1", "2")
        )
    slowed = Fault("slow", factor=1.0, delay_ms=SLOWER_SECONDS * 1e3)
    set_fault(repository, "digits", slowed, version="2")
    port = free_port()
    url = f"opentelemetry,url=http://127.0.0.1:{port}/v1/traces"
    quick = "opentelemetry,bsp_schedule_delay=300"
    with traced(repository, "mode=opentelemetry", url, quick) as triton:
        yield triton, port


class Users(Production):
    """Production: a user for each version of each model, who knows of no comparison."""

    def __init__(self, address: str, *served: tuple[str, str]) -> None:
        super().__init__(address, pause_seconds=PAUSE_SECONDS, users=len(served))
        self.seconds: dict[tuple[str, str], list[float]] = {s: [] for s in served}

    def ask(self, user: int) -> None:
        model, version = list(self.seconds)[user]
        inputs = {"pixels": np.zeros((1, 64), np.float32)}
        request = InferRequest(model, version, "user", inputs, {"pixels": "FP32"})
        reply = self.client.infer(request, timeout_seconds=30)
        self.seconds[model, version].append(reply.duration_seconds)


def ab(name: str, champion: str, challenger: str) -> dict[str, object]:
    return {
        "name": name,
        "mode": "ab",
        "champion": champion,
        "challenger": challenger,
        "metrics": ["latency_mean", "latency_p50", "success"],
        "margins": {"success": 0.1},
    }


def verdicts(page, name: str) -> dict[str, str]:
    return {
        labels["metric"]: labels["verdict"]
        for labels, value in page.all(VERDICT, comparison=name)
        if value == 1
    }


def test_production_that_is_split_tells_which_version_is_slower(
    split, settings, start_sidecar
) -> None:
    triton, port = split
    config = traces_config(settings, triton, port)
    config["probes"] = []
    config["comparisons"] = [
        ab("slowed", "digits:1", "digits:2"),
        ab("swapped", "digits:2", "digits:1"),
        ab("twins", "twin:1", "twin:2"),
    ]
    sidecar = start_sidecar(config)
    served = [(model, version) for model in ("digits", "twin") for version in "12"]
    began = time.monotonic()
    with Users(triton.grpc, *served) as users:
        page = sidecar.wait(
            lambda p: (
                verdicts(p, "slowed").get("latency_mean") == "worse"
                and verdicts(p, "slowed").get("latency_p50") == "worse"
                and verdicts(p, "swapped").get("latency_mean") == "better"
                and "latency_mean" in verdicts(p, "twins")
            ),
            300,
        )
    # No verdict from less than fifty windows.
    assert time.monotonic() - began > 90
    for name, sign in (("slowed", 1), ("swapped", -1)):
        low, high = (
            sign * page.value(EFFECT, comparison=name, metric="latency_mean", bound=b)
            for b in (("low", "high") if sign > 0 else ("high", "low"))
        )
        assert 0.05 < low < high, name
    # What the users saw: without it the verdicts were about something else.
    champion, challenger = (np.median(users.seconds["digits", v]) for v in "12")
    assert challenger - champion > SLOWER_SECONDS / 2
    for name in ("slowed", "twins"):
        assert verdicts(page, name)["success"] in {"equivalent", "undecided"}
    for metric in ("latency_mean", "latency_p50"):
        assert verdicts(page, "twins").get(metric) not in {"worse", "better"}
    assert page.sum("triton_comparison_pairs_total", comparison="twins") >= 50
