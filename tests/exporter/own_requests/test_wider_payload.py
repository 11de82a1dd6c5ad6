"""Larger shapes, which a response cache cannot know all of."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.own_requests.payload import InputSettings, make_payload, wider
from exporter.triton.protocol_types import ModelSpec, TensorSpec


def model(*shapes, datatype="INT32", batch=0, **more):
    inputs = tuple(
        TensorSpec(name, datatype, shape)
        for name, shape in zip("abc", shapes, strict=False)
    )
    return ModelSpec("m", "1", inputs, (), max_batch_size=batch, **more)


def shapes(spec, **overrides):
    """The shapes that are sent after widening, None where it is left as it is."""
    settings = {name: InputSettings(**given) for name, given in overrides.items()}
    found = wider(spec, settings)
    if found is None:
        return None
    payload = make_payload(spec, found, np.random.default_rng(0))
    for array in payload.inputs.values():
        assert set(array.ravel().tolist()) <= {0, 1}
    return [array.shape for array in payload.inputs.values()]


@pytest.mark.parametrize("datatype", ["INT8", "UINT64", "BOOL"])
def test_a_batch_gets_as_many_rows_as_give_two_to_the_24_requests(datatype):
    assert shapes(model((-1, 1), datatype=datatype, batch=64)) == [(24, 1)]
    assert shapes(model((-1, 5), datatype=datatype, batch=64)) == [(5, 5)]


def test_rows_stay_within_the_batch_size():
    assert shapes(model((-1, 1), batch=4)) == [(4, 1)]
    assert shapes(model((-1, 1), (-1, 2), batch=3)) == [(3, 1), (3, 2)]


def test_open_dimensions_get_one_length_in_all_inputs():
    assert shapes(model((1, -1), (-1,))) == [(1, 12), (12,)]
    assert shapes(model((-1, -1))) == [(5, 5)]


def test_what_rows_cannot_give_lengths_do():
    assert shapes(model((-1, -1), batch=4)) == [(4, 6)]


@pytest.mark.parametrize(
    "spec",
    [
        model((1,)),
        model((1, 3), batch=0),
        model((30,)),
        model((-1, 1), batch=1),
        model((-1, 1), batch=8, sequence=True),
        model(),
    ],
)
def test_nothing_is_widened_where_nothing_is_open_or_it_is_not_needed(spec):
    assert shapes(spec) is None


def test_a_shape_or_a_single_value_of_the_configuration_stays():
    assert shapes(model((-1, 1), batch=8), a={"shape": (2, 1)}) is None
    assert shapes(model((-1, 1), batch=8), a={"values": (1,)}) is None
    assert shapes(model((-1, 1), (-1, 1), batch=64), a={"values": (1, 1)}) == [
        (24, 1),
        (24, 1),
    ]


def test_a_wider_range_needs_fewer_rows():
    found = wider(model((-1, 1), batch=64), {"a": InputSettings(range=(0, 4095))})
    assert found is not None
    assert found["a"].shape == (2, 1)
    assert found["a"].range == (0, 4095)


def test_inputs_that_have_many_values_already_stay():
    assert wider(model((-1, 4), datatype="FP32", batch=8), {}) is None
    assert wider(model((-1, 2), datatype="BYTES", batch=8), {}) is None


def test_the_request_stays_small():
    spec = model((-1, 400), (-1, 400), batch=64)
    assert (
        wider(spec, {"a": InputSettings(values=(1,)), "b": InputSettings(values=(0,))})
        is None
    )
