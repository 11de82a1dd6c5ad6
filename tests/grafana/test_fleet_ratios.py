"""What panels show of a fleet: sums over sums, of the chosen sidecars and nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import promql
import pytest

from grafana import build

FOLDER = Path(build.__file__).with_name("dashboards")
# Replica a answers nine times as many requests as b, for a ninth of the joules of each.
RATES = {"a": 90, "b": 10}
VALUES = {"a": 2, "b": 18}
JOULES = (90 * 2 + 10 * 18) / 100


def targets(board: str, title: str) -> list[dict]:
    panels = json.loads((FOLDER / f"tritonwatch-{board}.json").read_text())["panels"]
    [found] = [panel for panel in panels if panel["title"] == title]
    return found["targets"]


def ask(given: dict[str, str], expected: dict[str, dict[str, float]], tmp_path) -> None:
    """Compare queries with their values, by labels, after ten minutes of the series."""
    asked = [
        {
            "expr": f"round({promql.filled_in(query)}, 0.0001)",
            "eval_time": "10m",
            "exp_samples": [{"labels": k, "value": v} for k, v in samples.items()],
        }
        for query, samples in expected.items()
    ]
    series = [{"series": name, "values": values} for name, values in given.items()]
    test = {"interval": "15s", "input_series": series, "promql_expr_test": asked}
    (tmp_path / "test.yaml").write_text(json.dumps({"tests": [test]}))
    run = ["promtool", "test", "rules", tmp_path / "test.yaml"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def of_replicas(metric: str, labels: str, values: dict[str, float]) -> dict[str, str]:
    return {
        f'{metric}{{job="j",instance="{name}",model="m",version="1",{labels}}}': f"{value}x60"
        for name, value in values.items()
    }


def rising(metric: str, labels: str = "") -> dict[str, str]:
    return {
        f'{metric}{{job="j",instance="{name}",model="m",version="1",{labels}}}': (
            f"0+{15 * rate}x60"
        )
        for name, rate in RATES.items()
    }


@pytest.mark.parametrize(
    ("board", "title", "metric", "labels", "weight", "factor"),
    [
        (
            "energy", "Energy of an inference", "triton_inference_energy_joules",
            'boundary="{}",basis="full"', rising("triton_inferences_total"), 1,
        ),
        (
            "generation", "Energy of 1,000 output tokens", "triton_token_energy_joules",
            'boundary="{}",basis="full"',
            rising("triton_tokens_total", 'direction="output",source="backend"'), 1000,
        ),
        (
            "generation", "Cost of 1,000 output tokens",
            "triton_model_cost_per_thousand_tokens", 'currency="{}",basis="full"',
            rising("triton_tokens_total", 'direction="output",source="backend"'), 1,
        ),
        (
            "generation", "Carbon of 1,000 output tokens",
            "triton_model_carbon_per_thousand_tokens_grams", 'basis="{}"',
            rising("triton_tokens_total", 'direction="output",source="backend"'), 1,
        ),
    ],
)  # fmt: skip
def test_a_replica_counts_by_its_traffic(
    board, title, metric, labels, weight, factor, tmp_path, require_commands
) -> None:
    require_commands("promtool")
    of_b = {name: 100 * value for name, value in VALUES.items()}
    given = weight | of_replicas(metric, labels.format("x"), VALUES)
    given |= of_replicas(metric, labels.format("y"), of_b)
    [target] = targets(board, title)
    expected = {
        f'{{model="m",{labels.format(name)}}}': factor * value
        for name, value in (("x", JOULES), ("y", 100 * JOULES))
    }
    ask(given, {target["expr"]: expected}, tmp_path)


def test_efficiency_is_inferences_over_joules_of_each_boundary(
    tmp_path, require_commands
) -> None:
    require_commands("promtool")
    gauge = "triton_inference_energy_joules"
    of_host = {name: 10 * value for name, value in VALUES.items()}
    given = rising("triton_inferences_total")
    for source in ("nvml", "model"):  # whose joules are added up
        half = {name: value / 2 for name, value in VALUES.items()}
        labels = f'boundary="gpu",basis="full",source="{source}"'
        given |= of_replicas(gauge, labels, half)
    given |= of_replicas(gauge, 'boundary="host",basis="full"', of_host)
    cost = "triton_model_cost_per_thousand_inferences"
    given |= of_replicas(cost, 'currency="USD",basis="full"', VALUES)
    gpu, host, price = targets("energy", "Efficiency and cost")
    labels = '{model="m",version="1",basis="full"}'
    expected = {
        gpu["expr"]: {labels: round(1 / JOULES, 4)},
        host["expr"]: {labels: round(0.1 / JOULES, 4)},
        price["expr"]: {labels: JOULES},
    }
    ask(given, expected, tmp_path)


def test_the_error_of_tokens_energy_is_that_of_models_with_tokens(
    tmp_path, require_commands
) -> None:
    require_commands("promtool")
    error = "triton_model_energy_share_error_ratio"
    given = of_replicas(error, 'boundary="gpu"', VALUES)
    given |= {f'{error}{{job="j",instance="a",model="other",boundary="gpu"}}': "9x60"}
    tokens = 'boundary="gpu",basis="full",source="backend"'
    given |= of_replicas("triton_token_energy_joules", tokens, VALUES)
    (query,) = targets("generation", "Error of the energy of 1,000 output tokens")
    expected = {'{model="m",boundary="gpu"}': float(max(VALUES.values()))}
    ask(given, {query["expr"]: expected}, tmp_path)


def test_other_jobs_of_prometheus_are_no_sidecars(tmp_path, require_commands) -> None:
    require_commands("promtool")
    given = {
        'up{job="j",instance="a"}': "1x60",
        'tritonwatch_build_info{job="j",instance="a",version="1"}': "1x60",
        # Dead since the first scrape but one; it has no build_info any more.
        'up{job="j",instance="dead"}': "1 0x60",
        'tritonwatch_build_info{job="j",instance="dead",version="1"}': "1 stale",
    }
    for name in ("node", "other"):
        given[f'up{{job="{name}",instance="{name}"}}'] = "0x60"
    for instance, job in (("a", "j"), ("node", "node")):
        where = f'{{job="{job}",instance="{instance}"}}'
        given[f"process_cpu_seconds_total{where}"] = "0+15x60"
        given[f"process_resident_memory_bytes{where}"] = "7x60"
    one = '{job="j",instance="a"}'
    [scraped] = targets("sidecar", "Sidecars scraped")
    [cores] = targets("sidecar", "CPU cores")
    [memory] = targets("sidecar", "Memory")
    expected = {
        scraped["expr"]: {"{}": 0.5},
        cores["expr"]: {one: 1},
        memory["expr"]: {one: 7},
    }
    ask(given, expected, tmp_path)
