"""Golden sets of one model: which calibration counts, and whether the others agree."""

from __future__ import annotations

import numpy as np
import pytest

from drift.numerics.confidence_calibration import calibrate
from exporter.access.calibration_board import Calibrated, CalibrationBoard

KEY = ("m", "1")


@pytest.mark.parametrize(("output", "agrees"), [("logits", False), ("aux", None)])
def test_a_suspended_set_is_not_known_to_agree_with_one_of_its_output(output, agrees):
    rng = np.random.default_rng(0)
    said = rng.uniform(0.5, 1.0, 200)
    measured = calibrate(said, rng.random(200) < said)
    board = CalibrationBoard()
    for dataset, of in (("large", "logits"), ("small", output)):
        board.publish(KEY, Calibrated(of, dataset, measured))
    board.suspend(KEY, "small")
    assert board.agree(KEY) is agrees
    board.suspend(KEY, "large")
    assert board.get(KEY) is None
    assert board.agree(KEY) is None
