"""Estimated accuracy beside a real drift watch: what it says of drift, and when."""

from __future__ import annotations

import numpy as np
import pytest
from accesses import access_to

from drift.numerics.confidence_calibration import calibrate
from exporter.access.calibration_board import Calibrated
from exporter.access.mirror_hub import Mirrored
from exporter.features.outputs.outputs_settings import OutputsSettings


@pytest.fixture
def estimates(bench):
    """Conditions of the estimate of model m, as a scrape now would have them."""
    access = access_to(None, board=bench.board, exposed=lambda: bench.samples)
    collector = OutputsSettings().build(access)
    said = np.random.default_rng(1).uniform(0.5, 1, 400)
    right = (np.random.default_rng(2).random(400) < said).astype(float)
    access.calibration.publish(
        ("m", "1"), Calibrated("y", "set", calibrate(said, right))
    )
    answers = np.stack([said, 1 - said], axis=1)
    access.mirror.publish([Mirrored("http", "m", "1", "1", outputs={"y": answers})])

    def conditions():
        return {
            sample.labels[-1]: sample.value
            for sample in collector.collect()
            if sample.spec.name == "triton_estimated_accuracy_valid"
        }

    yield conditions
    collector.close()  # type: ignore[attr-defined]


def test_no_drift_is_said_only_once_a_window_of_the_inputs_was_judged(
    bench, entry, estimates
) -> None:
    unwatched = estimates()
    assert unwatched["drift_watched"] == 0
    assert "no_drift" not in unwatched
    bench.watch(entry)
    bench.collect(after=1)
    assert "no_drift" not in estimates()
    bench.window(bench.rows(1000), seconds=10.0)
    watched = estimates()
    assert watched["drift_watched"] == watched["no_drift"] == 1
    kept = bench.value("triton_drift_promise_kept", "m", "inputs")
    assert watched["drift_guaranteed"] == kept
    for _ in range(3):
        bench.window(bench.rows(1000, shift=2.0), seconds=10.0)
    assert estimates()["no_drift"] == 0
