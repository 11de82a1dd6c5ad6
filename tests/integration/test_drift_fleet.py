"""What a real Prometheus adds up of three sidecars is what one would see of all rows."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path

import monitoring
import numpy as np
import pytest
from waiting import patience, wait_until

from drift.comparison import Baseline
from drift.features import Schema, Tensor
from drift.fitting import fit
from drift.statistics import JensenShannon, Psi

pytestmark = pytest.mark.triton

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules" / "drift.yaml"
WATCHED = ("x[0]", "x[1]")


def mirror(port: int, rows: np.ndarray) -> None:
    """What a proxy would pass on."""
    tensor = {
        "name": "x",
        "datatype": "FP32",
        "shape": list(rows.shape),
        "data": rows.ravel().tolist(),
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(10))
    connection.request(
        "POST",
        "/v2/models/double/infer",
        json.dumps({"id": "r", "inputs": [tensor]}),
        {"content-type": "application/json"},
    )
    assert connection.getresponse().status < 300
    connection.close()


@pytest.fixture
def profile():
    schema = Schema.from_tensors([Tensor("x", "FP32", (8,))])
    rows = np.random.default_rng(11).normal(0.0, 1.0, (5000, 8)).astype(np.float32)
    return fit(schema, {"x": rows})


@pytest.fixture
def fleet_of_three(playground, settings, start_sidecar, tmp_path, profile):
    """Three sidecars with one reference, and the ports of their taps."""
    file = tmp_path / "reference.profile"
    file.write_bytes(profile.to_bytes())
    taps, sidecars = [], []
    for _ in range(3):
        config = settings(
            playground,
            probes=[],
            drift=[
                {
                    "models": "double",
                    "reference": str(file),
                    "window": {"rows": 100, "seconds": 1},
                    "export_bins": ["x[[][01]]"],
                }
            ],
        )
        taps.append(monitoring.free_port())
        config["listen"]["tap"] = {"port": taps[-1]}
        unlimited = {"samples_per_second": 100_000, "max_samples_per_second": 100_000}
        config["collectors"].append(
            {"kind": "mirror", "interval_seconds": 0.5, **unlimited}
        )
        sidecars.append(start_sidecar(config))
    for sidecar in sidecars:
        sidecar.wait(lambda page: page.all("triton_feature_observations_total"), 30)
    return sidecars, taps


@pytest.mark.slow
def test_the_fleets_distance_is_that_of_all_rows_together(
    fleet_of_three, profile, tmp_path
) -> None:
    rng = np.random.default_rng(12)
    sidecars, taps = fleet_of_three

    job = monitoring.Job([sidecar.port for sidecar in sidecars])
    rules = {"drift.yaml": RULES.read_text("utf-8")}
    with monitoring.Prometheus(
        tmp_path, job, scrape_interval="250ms", rules=rules
    ) as prometheus:
        wait(
            lambda: len(prometheus.values("triton_feature_observations_total == 0")),
            len(sidecars) * sum(profile.projection.used[:2]),
        )
        everything = profile.accumulator()
        # Each replica is far from the reference in its own way, and sees its own share.
        for _ in range(10):
            for port, shift, share in zip(
                taps, (-0.5, 0.2, 0.9), (1, 2, 3), strict=True
            ):
                rows = rng.normal(shift, 1.0, (40 * share, 8)).astype(np.float32)
                mirror(port, rows)
                everything.update({"x": rows})
            time.sleep(0.5)
        pooled = everything.take()
        for feature in WATCHED:
            counted = f'sum(triton_feature_observations_total{{feature="{feature}"}})'
            wait(lambda q=counted: number(prometheus, q), pooled.rows)
        comparison = Baseline(profile).compare(pooled)
        expected = {
            (name, feature): distance[place]
            for name, distance in (
                ("psi", Psi().distance(comparison)),
                ("jensen_shannon", JensenShannon().distance(comparison)),
            )
            for place, feature in enumerate(WATCHED)
        }
        # increase() extrapolates each replica to the ends of its range by up to a scrape
        # interval: much of the few seconds there were so far, nothing of an hour. With
        # the counters at rest it fades, and then it stays so.
        deadline = time.monotonic() + patience()
        in_a_row = 0
        while in_a_row < 4:
            found = {key: fleet(prometheus, *key) for key in expected}
            right = found == pytest.approx(expected, rel=0.01)
            in_a_row = in_a_row + 1 if right else 0
            assert time.monotonic() < deadline, (found, expected)
            time.sleep(1)
        # Whereas the mean of the replicas' own distances is another number.
        own = number(
            prometheus,
            'avg(triton_feature_drift_score{feature="x[0]",statistic="psi"})',
        )
        assert abs(own / comparison_of(comparison) - 1) > 0.2


def comparison_of(comparison) -> float:
    return float(Psi().distance(comparison)[0])


def fleet(prometheus, name: str, feature: str) -> float | None:
    """What the shipped rules recorded."""
    record = f'model_feature:triton_feature_{name}:ratio1h{{feature="{feature}"}}'
    return number(prometheus, record)


def number(prometheus, expression: str) -> float | None:
    found = prometheus.values(expression)
    assert len(found) < 2, found
    return found[0][1] if found else None


def wait(ask, wanted) -> None:
    wait_until(lambda: ask() == wanted, lambda: f"found {ask()}, want {wanted}")
