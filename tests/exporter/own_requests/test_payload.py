"""Made-up inputs: right for every signature, or a sentence saying why not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import InvalidRequestError
from exporter.own_requests.payload import MAX_ELEMENTS, InputSettings, make_payload
from exporter.triton.protocol_types import ModelSpec, TensorSpec
from exporter.triton.tensors import DATATYPES, FLOATS, array_dtype, encode

INTEGERS = [d for d in DATATYPES if d.startswith(("INT", "UINT"))]


def limits_of(datatype):
    info = np.iinfo(datatype.lower())
    return int(info.min), int(info.max)


def model(*inputs):
    return ModelSpec("m", "1", inputs, ())


def tensor(datatype="FP32", shape=(1, 4), name="X", *, optional=False):
    return TensorSpec(name, datatype, shape, optional)


def drawn(datatype="FP32", shape=(1, 4), seed=0, **settings):
    overrides = {"X": InputSettings(**settings)} if settings else {}
    rng = np.random.default_rng(seed)
    payload = make_payload(model(tensor(datatype, shape)), overrides, rng)
    assert payload.datatypes == {"X": datatype}
    return payload.inputs["X"]


def refusal(datatype="FP32", shape=(1, 4), **settings):
    with pytest.raises(InvalidRequestError) as caught:
        drawn(datatype, shape, **settings)
    return str(caught.value)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 4), (2, 0, 5), (1, 1, 2, 2)])
@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_fills_every_shape(datatype, shape):
    array = drawn(datatype, shape)
    assert isinstance(array, np.ndarray)
    assert array.shape == shape
    assert array.dtype == array_dtype(datatype)
    size = {"BYTES": None, "BF16": 2}.get(datatype, array.itemsize)
    if size is not None:
        assert len(encode(array, datatype)) == size * array.size


@pytest.mark.parametrize("datatype", sorted(FLOATS))
def test_floats_come_from_0_to_1(datatype):
    array = drawn(datatype, (1000,)).astype(np.float64)
    assert array.min() >= 0
    assert array.max() <= 1
    assert len(np.unique(array)) > 300


@pytest.mark.parametrize("datatype", [*INTEGERS, "BOOL"])
def test_integers_are_0_or_1_as_any_vocabulary_has(datatype):
    assert set(drawn(datatype, (100,)).tolist()) == {0, 1}


def test_texts_are_short_words():
    words = drawn("BYTES", (20,)).tolist()
    assert all(word.startswith(b"probe-") for word in words)
    assert len(set(words)) > 10


@pytest.mark.parametrize(
    ("declared", "made"), [((-1,), (1,)), ((-1, 3, -1), (1, 3, 1)), ((), ())]
)
def test_open_dimensions_become_1(declared, made):
    assert drawn(shape=declared).shape == made


@pytest.mark.parametrize("shape", [(8, 4), (8,), (8, 3, 1), ()])
def test_a_configured_shape_that_does_not_fit_is_refused(shape):
    overrides = {"X": InputSettings(shape=shape)}
    with pytest.raises(InvalidRequestError) as caught:
        make_payload(model(tensor(shape=(-1, 3))), overrides, np.random.default_rng(0))
    assert str(caught.value) == (
        f"the config gives input 'X' the shape {list(shape)}; the model expects [-1, 3]"
    )


def test_optional_inputs_are_left_out_unless_named():
    spec = model(
        tensor(name="A"),
        tensor(name="B", optional=True),
        tensor(name="C", optional=True),
    )
    overrides = {"C": InputSettings()}
    payload = make_payload(spec, overrides, np.random.default_rng(0))
    assert list(payload.inputs) == list(payload.datatypes) == ["A", "C"]


def test_a_name_the_model_does_not_have_is_told_with_those_it_has():
    overrides = {"Y": InputSettings(), "Z": InputSettings()}
    with pytest.raises(InvalidRequestError) as caught:
        make_payload(model(tensor()), overrides, np.random.default_rng(0))
    assert str(caught.value) == "the config names inputs ['Y', 'Z']; m has ['X']"


@pytest.mark.parametrize("datatype", DATATYPES)
def test_one_seed_gives_one_payload_and_the_next_draw_another(datatype):
    spec, rng = model(tensor(datatype, (64,))), np.random.default_rng(5)
    first, second = (make_payload(spec, {}, rng).inputs["X"] for _ in range(2))
    assert first.tolist() == drawn(datatype, (64,), seed=5).tolist()
    assert first.tolist() != second.tolist()


# Ranges.


@pytest.mark.parametrize("datatype", INTEGERS)
def test_both_ends_of_an_integer_range_are_drawn(datatype):
    _, most = limits_of(datatype)
    array = drawn(datatype, (200,), range=(most - 1, most))
    assert set(array.tolist()) == {most - 1, most}


@pytest.mark.parametrize("datatype", INTEGERS)
def test_a_range_may_span_the_whole_datatype(datatype):
    least, most = limits_of(datatype)
    array = drawn(datatype, (2000,), range=(least, most))
    spread = (int(array.max()) - int(array.min())) / (most - least)
    assert spread > 0.9


@pytest.mark.parametrize("datatype", INTEGERS)
def test_a_range_wider_than_the_datatype_is_cut_to_it(datatype):
    least, most = limits_of(datatype)
    array = drawn(datatype, (50,), range=(most, 1e30))
    assert set(array.tolist()) == {most}
    array = drawn(datatype, (50,), range=(-1e30, least))
    assert set(array.tolist()) == {least}


@pytest.mark.parametrize(
    ("datatype", "ends"),
    [
        ("UINT8", (256, 300)),
        ("UINT8", (-10, -1)),
        ("INT8", (128, 128)),
        ("UINT64", (2**64, 2**64)),
        ("INT32", (0.2, 0.8)),
        ("BOOL", (2, 3)),
        ("FP16", (0, 65505)),
        ("BF16", (-3.4e38, 0)),
        ("FP32", (0, 3.5e38)),
    ],
)
def test_a_range_outside_of_the_datatype_is_refused(datatype, ends):
    assert refusal(datatype, range=ends) == (
        f"the config gives input 'X' a range that is not of its datatype {datatype}"
    )


@pytest.mark.parametrize(
    ("ends", "inside"), [((0.5, 2.5), {1, 2}), ((-1.5, 0.5), {-1, 0})]
)
def test_only_whole_numbers_inside_of_a_range_are_drawn(ends, inside):
    assert set(drawn("INT32", (100,), range=ends).tolist()) == inside


@pytest.mark.parametrize("end", [0, 1])
def test_a_range_holds_for_truth_values(end):
    assert set(drawn("BOOL", (50,), range=(end, end)).tolist()) == {bool(end)}


@given(
    st.sampled_from(["FP32", "FP64"]),
    st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=2, max_size=2).map(
        sorted
    ),
)
def test_floats_stay_inside_of_their_range(datatype, ends):
    array = drawn(datatype, (20,), range=tuple(ends))
    assert (array >= ends[0]).all()
    assert (array <= ends[1]).all()


def test_the_widest_range_of_floats_is_finite():
    largest = float(np.finfo(np.float64).max)
    array = drawn("FP64", (100,), range=(-largest, largest))
    assert np.isfinite(array).all()
    assert array.min() < 0 < array.max()


# Values.


@pytest.mark.parametrize(
    ("datatype", "values", "expected"),
    [
        ("BOOL", (True,), {True}),
        ("BOOL", (0, 1), {False, True}),
        ("INT8", (-128, 127), {-128, 127}),
        ("UINT64", (2**64 - 1, 0), {2**64 - 1, 0}),
        ("INT64", (2**53 + 1, 3.0), {2**53 + 1, 3}),
        ("FP16", (0.5, 65504), {0.5, 65504.0}),
        ("BF16", (1.5, True), {1.5, 1.0}),
        ("FP32", (-1, 2.5), {-1.0, 2.5}),
        ("FP64", (0.1,), {0.1}),
        ("BYTES", ("ä", 1, True, 2.5), {"ä".encode(), b"1", b"True", b"2.5"}),
    ],
)
def test_values_are_what_is_drawn_from(datatype, values, expected):
    assert set(drawn(datatype, (200,), values=values).tolist()) == expected


@pytest.mark.parametrize(
    ("datatype", "values", "wrong"),
    [
        ("BOOL", (0, 2), 1),
        ("INT8", (1, 128), 1),
        ("UINT8", (-1,), 0),
        ("UINT64", (2**63, -1), 1),
        ("INT32", (0.5,), 0),
        ("INT64", (2**63,), 0),
        ("INT32", ("5",), 0),
        ("FP32", ("abc",), 0),
        ("FP16", (65505,), 0),
        ("BF16", (1.0, 3.4e38), 1),
        ("FP32", (1, 10**300), 1),
        ("FP64", (1, 10**400), 1),
    ],
)
def test_a_value_that_is_none_of_the_datatype_is_refused_without_showing_it(
    datatype, values, wrong
):
    assert refusal(datatype, values=values) == (
        f"the config gives input 'X' a values[{wrong}] that is not of its datatype "
        f"{datatype}"
    )


def test_values_can_be_the_contents_of_files(tmp_path):
    whole = [b"\xff\xd8\0", b""]
    files = [tmp_path / name for name in "ab"]
    for file, content in zip(files, whole, strict=True):
        file.write_bytes(content)
    array = drawn("BYTES", (50,), files=files)
    assert set(array) == set(whole)
    assert "not of its datatype FP32" in refusal(files=files)
    assert "No such file" in refusal("BYTES", files=[tmp_path / "c"])
    assert "Is a directory" in refusal("BYTES", files=[tmp_path])
    # All of them together are one message.
    files[0].write_bytes(bytes(1 << 20))
    assert "66060288 bytes" in refusal("BYTES", (64,), files=files)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_one_value_can_be_given_to_a_scalar(datatype):
    array = drawn(datatype, (), values=(1,))
    assert array.shape == ()
    assert array.tolist() in (1, b"1")


# Bounds.


def test_more_values_than_a_probe_sends_are_refused():
    assert refusal(shape=(MAX_ELEMENTS + 1,)).startswith(
        f"input 'X' would have the shape [{MAX_ELEMENTS + 1}]; a probe sends at most "
        f"{MAX_ELEMENTS} values"
    )


@pytest.mark.parametrize(
    "shape", [(2**32, 2**32), (0, 2**62), (2**63,) * 20, (10**400,), (4097, 4097)]
)
def test_no_shape_of_a_hostile_model_costs_memory(shape):
    assert "a probe sends at most" in refusal(shape=shape)


def test_all_inputs_together_are_bounded():
    half = tensor("BOOL", (MAX_ELEMENTS // 2 + 1,), "A")
    spec = model(half, tensor("BOOL", half.shape, "B"))
    with pytest.raises(InvalidRequestError, match="input 'B' would have the shape"):
        make_payload(spec, {}, np.random.default_rng(0))


def test_optional_inputs_are_sent_where_the_request_would_be_empty():
    one, two = (TensorSpec(name, "FP32", (1,), optional=True) for name in ("a", "b"))
    rng = np.random.default_rng(0)
    spec = ModelSpec("m", "1", (one, two), ())
    assert make_payload(spec, {}, rng).inputs.keys() == {"a", "b"}
    omitted = {"a": InputSettings(omit=True)}
    assert make_payload(spec, omitted, rng).inputs.keys() == {"b"}
    both = omitted | {"b": InputSettings(omit=True)}
    assert not make_payload(spec, both, rng).inputs
    required = ModelSpec("m", "1", (one, TensorSpec("c", "FP32", (1,))), ())
    assert make_payload(required, {}, rng).inputs.keys() == {"c"}
