"""Inputs that a request may leave out: there they are missing values, and no violations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from exporter.triton.protocol_types import TensorSpec

ALARM = "triton_model_drift_alarm"
OPTIONAL = {
    "number": TensorSpec("opt", "FP32", (-1, 1), optional=True),
    "whole": TensorSpec("opt", "INT32", (-1, 1), optional=True),
    "category": TensorSpec("opt", "BYTES", (-1, 1), optional=True),
    "text": TensorSpec("opt", "BYTES", (-1, 1), optional=True),
}


@pytest.fixture(params=OPTIONAL)
def kind(request):
    return request.param


@pytest.fixture
def entry(bench, spec_of, kind):
    spec = spec_of(inputs={"x": ("FP32", (-1, 1))})
    bench.models(replace(spec, inputs=(*spec.inputs, OPTIONAL[kind])))
    features = [{"name": "x", "tensor": "x"}, {"name": "opt", "tensor": "opt"}]
    named = {"features": features[:1], "text": ["opt"]} if kind == "text" else {}
    return {
        "learn": {"rows": 3000, "seconds": 1},
        "window": {"rows": 100, "seconds": 10},
        "features": features,
        **named,
    }


def ask(bench, kind, number, *, left_out=0.3):
    made = {
        "number": lambda: bench.rng.normal(size=(2, 1)).astype(np.float32),
        "whole": lambda: bench.rng.integers(100, size=(2, 1)).astype(np.int32),
        "category": lambda: bench.rng.choice([b"a", b"b"], (2, 1)).astype(object),
        "text": lambda: bench.rng.choice([b"a b", b"b"], (2, 1)).astype(object),
    }[kind]
    for _ in range(number):
        request = {"x": bench.rng.normal(size=(2, 1)).astype(np.float32)}
        if bench.rng.random() >= left_out:
            request["opt"] = made()
        bench.send(request)


def watching(bench, kind, entry):
    bench.watch(entry)
    ask(bench, kind, 1500)
    bench.collect(after=5)
    assert bench.state() == "watching"
    assert bench.value("triton_drift_reference_rows", "m", "inputs") == 3000


def missing(bench, kind):
    name = "opt.words" if kind == "text" else "opt"
    return bench.value("triton_feature_missing_ratio", "m", name)


def test_requests_that_leave_out_as_many_as_in_the_reference_are_no_change(
    bench, kind, entry
):
    watching(bench, kind, entry)
    for _ in range(6):
        ask(bench, kind, 200)
        bench.collect(after=10)
        assert bench.value(ALARM, "m") == 0
        assert missing(bench, kind) == pytest.approx(0.3, abs=0.12)
    assert bench.violations() == {}


def test_an_input_that_is_left_out_more_often_alarms(bench, kind, entry):
    watching(bench, kind, entry)
    for _ in range(4):
        ask(bench, kind, 200, left_out=0.6)
        bench.collect(after=10)
    assert bench.value(ALARM, "m") == 1
    (change,) = bench.document()["changes"][:1]
    assert change["feature"].startswith("opt")


def test_a_required_input_that_is_left_out_is_a_violation(bench, kind, entry):
    watching(bench, kind, entry)
    ask(bench, kind, 100)
    bench.send({"opt": np.array([[7], [8]], np.float32)})
    bench.send({"y": np.array([[7]], np.float32)})
    bench.collect(after=10)
    assert bench.violations()["absent"] == 2
