"""Floats of another width than the reference's are the same values."""

from __future__ import annotations

import numpy as np
import pytest

from drift.features import Feature, Schema, Tensor

ALARM = "triton_model_drift_alarm"
NUMPY = {"FP16": "f2", "FP32": "f4", "FP64": "f8"}
VALUES = {
    "prices": np.array([0.99, 1.49, 1.99, 2.49, 4.99, 9.99]),
    "rates": np.array([0.1, 0.25, 0.35, 0.7]),
}


@pytest.mark.parametrize("kind", ["numeric", "categorical"])
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize(
    ("reference", "model"),
    [("FP64", "FP16"), ("FP64", "FP32"), ("FP32", "FP16"), ("FP32", "FP64")],
)
def test_common_values_of_another_width_raise_no_alarm(
    bench, spec_of, reference, model, values, kind
):
    def drawn(rows, datatype):
        found = bench.rng.choice(VALUES[values], (rows, 1))
        # A tensor of the model that the reference leaves out.
        colour = bench.rows(rows)["colour"]
        return {"x": found.astype(NUMPY[datatype]), "colour": colour}

    schema = Schema((Tensor("x", reference, (1,)),), (Feature("x", "x", 0, kind),))
    tensors = {"x": (model, (-1, 1)), "colour": ("BYTES", (-1, 1))}
    bench.models(spec_of(inputs=tensors))
    profile = bench.profile({"x": drawn(4000, reference)["x"]}, schema)
    bench.watch({"reference": profile, "window": {"rows": 100, "seconds": 10}})
    for _ in range(4):
        bench.window(drawn(500, model))
    assert bench.value(ALARM, "m") == 0
    assert bench.violations() == {}
    if kind == "categorical":
        assert bench.value("triton_feature_unseen_category_ratio", "m", "x") == 0


def test_special_floats_of_half_width_stay_what_they_are(bench, spec_of):
    schema = Schema.from_tensors([Tensor("x", "FP32", (1,))])
    bench.models(spec_of(inputs={"x": ("FP16", (-1, 1))}))
    data = {"x": bench.rng.normal(size=(4000, 1)).astype("f4")}
    profile = bench.profile(data, schema)
    bench.watch({"reference": profile, "window": {"rows": 4, "seconds": 10}})
    bench.window({"x": np.array([[np.nan], [np.inf], [-np.inf], [-0.5]], "f2")})
    assert bench.value("triton_feature_missing_ratio", "m", "x") == 0.25
    assert bench.value("triton_feature_infinite_ratio", "m", "x") == 0.5
    assert bench.violations() == {}
