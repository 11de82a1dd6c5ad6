"""Windows of counts: exact under merging, and unimpressed by bad requests."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drift.errors import SchemaError, StateError
from drift.features import Feature, Schema, Tensor
from drift.fitting import fit
from drift.window import Counts

SCHEMA = Schema(
    (Tensor("x", "FP32", (3,)), Tensor("colour", "BYTES"), Tensor("code", "INT32")),
    (
        Feature("colour", "colour", 0, "categorical"),
        Feature("a", "x", 0),
        Feature("c", "x", 2),
        Feature("code", "code", 0, "categorical"),
    ),
)


def draw(rng, rows):
    return {
        "x": rng.normal(size=(rows, 3)).astype(np.float32),
        "colour": rng.choice([b"red", b"green", b"blue"], size=rows).astype(object),
        "code": rng.integers(0, 5, size=rows).astype(np.int32),
    }


@pytest.fixture(scope="module")
def profile():
    return fit(SCHEMA, draw(np.random.default_rng(0), 2000))


def cut(data, start, stop):
    return {name: tensor[start:stop] for name, tensor in data.items()}


@settings(max_examples=25)
@given(st.lists(st.integers(0, 6000), min_size=1, max_size=6), st.integers(0, 99))
def test_merging_parts_equals_one_pass_bit_for_bit(profile, ends, seed):
    data = draw(np.random.default_rng(seed), 6000)
    data["x"][::7, 0] = np.nan
    data["x"][::11, 2] = np.inf
    whole = profile.accumulator()
    whole.update(data)
    bounds = sorted({0, 6000, *ends})
    parts = []
    for start, stop in pairwise(bounds):
        part = profile.accumulator()
        part.update(cut(data, start, stop))
        parts.append(part.take())
    total, expected = reduce(add, reversed(parts)), whole.take()
    assert np.array_equal(total.cells, expected.cells)
    assert total.rows == expected.rows


def test_one_row_requests_count_like_one_batch(profile):
    data = draw(np.random.default_rng(1), 2500)
    rows, batch = profile.accumulator(), profile.accumulator()
    batch.update(data)
    for index in range(2500):
        rows.update(cut(data, index, index + 1))
    assert np.array_equal(rows.take().cells, batch.take().cells)


def test_a_restored_window_goes_on_counting(profile):
    data = draw(np.random.default_rng(3), 100)
    whole, first, second = (profile.accumulator() for _ in range(3))
    whole.update(data)
    first.update(cut(data, 0, 60))
    second.restore(first.take())
    second.update(cut(data, 60, 100))
    assert np.array_equal(second.take().cells, whole.take().cells)


def test_counts_survive_as_a_state(profile):
    data = draw(np.random.default_rng(7), 300)
    data["x"][3, 0] = np.nan
    window = profile.accumulator()
    window.update(data)
    window.update({"new": np.zeros(3)} | cut(data, 0, 5))
    counts = window.take()
    again = Counts.from_state(counts.state())
    assert np.array_equal(again.cells, counts.cells)
    assert again.cells.dtype == counts.cells.dtype
    assert (again.rows, again.numeric) == (counts.rows, counts.numeric)
    assert again.violations == counts.violations == {("extra", ""): 1}


def test_counts_of_another_profile_are_refused(profile):
    with pytest.raises(StateError, match="only counts over one profile"):
        profile.accumulator().restore(Counts.empty(2, 2))


@pytest.mark.parametrize(
    ("change", "violation", "missing"),
    [
        ({"x": None}, ("absent", "x"), [4, 4, 0, 0]),
        ({"new": np.zeros(4)}, ("extra", ""), [0, 0, 0, 0]),
        ({"x": np.zeros((4, 3), np.float64)}, ("dtype", "x"), [0, 0, 0, 0]),
        ({"x": np.zeros((4, 2), np.float32)}, ("shape", "x"), [4, 4, 0, 0]),
        ({"x": np.zeros((4, 3, 1), np.float32)}, ("shape", "x"), [4, 4, 0, 0]),
        ({"x": np.float32(3)}, ("shape", "x"), [4, 4, 0, 0]),
        ({"x": np.full((4, 3), "?", object)}, ("type", "x"), [4, 4, 0, 0]),
        ({"code": np.zeros(4, np.int64)}, ("dtype", "code"), [0, 0, 0, 0]),
        ({"colour": np.zeros(4)}, ("type", "colour"), [0, 0, 4, 0]),
        ({"code": np.zeros(3, np.int32)}, ("shape", "code"), [0, 0, 0, 4]),
        ({"code": np.zeros((4, 2), np.int32)}, ("shape", "code"), [0, 0, 0, 4]),
    ],
)
def test_what_does_not_fit_is_counted_and_never_raises(
    profile, change, violation, missing
):
    request = draw(np.random.default_rng(4), 4) | change
    request = {name: tensor for name, tensor in request.items() if tensor is not None}
    window = profile.accumulator()
    window.update(request)
    counts = window.take()
    assert counts.violations == {violation: 1}
    assert counts.missing.tolist() == missing
    assert counts.rows == 4


def test_columns_of_one_tensor_come_in_the_order_of_the_features():
    rng = np.random.default_rng(5)
    schema = Schema(
        (Tensor("x", "FP32", (3,)),),
        (Feature("last", "x", 2), Feature("first", "x", 0)),
    )
    x = rng.normal(size=(500, 3)).astype(np.float32)
    profile = fit(schema, {"x": x})
    x[:7, 2] = np.nan
    window = profile.accumulator()
    window.update({"x": x})
    assert window.take().missing.tolist()[:2] == [7, 0]


def test_quality_is_counted_by_feature(profile):
    data = draw(np.random.default_rng(6), 100)
    data["x"][:10, 0] = np.nan
    data["x"][10:15, 0] = -np.inf
    data["x"][:, 2] = 1.25
    data["colour"][:20] = b"mauve"
    data["colour"][20:22] = b""
    window = profile.accumulator()
    window.update(data)
    counts = window.take()
    assert counts.missing.tolist() == [10, 0, 2, 0]
    assert counts.infinite.tolist() == [5, 0, 0, 0]
    assert counts.outside.tolist() == [0, 0, 20, 0]
    assert counts.finite.tolist() == [85, 100, 98, 100]
    standing = profile.constant(counts)
    assert standing.tolist() == [False, True, False, False]


def test_text_too_large_for_the_ring_dtype_does_not_warn(profile):
    request = draw(np.random.default_rng(8), 2)
    request["x"] = np.full((2, 3), 1e300)
    window = profile.accumulator()
    window.update(request)
    assert window.take().infinite.tolist()[:2] == [2, 2]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ((Feature("a", "x", 0), Feature("a", "x", 1)), "named twice"),
        ((Feature("a", "y", 0),), "not one of"),
        ((Feature("a", "x", 3),), "which has 3"),
        ((Feature("a", "colour", 0),), "make it categorical"),
    ],
)
def test_a_schema_that_cannot_be_watched_is_refused(features, message):
    with pytest.raises(SchemaError, match=message):
        Schema(SCHEMA.tensors, features)


def test_without_configuration_columns_are_named_after_their_tensor():
    schema = Schema.from_tensors(SCHEMA.tensors)
    assert schema.names == ("x[0]", "x[1]", "x[2]", "code", "colour")
