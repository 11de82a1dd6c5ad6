"""Tensors to bytes and back, against tritonclient and ml_dtypes as second opinions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tritonclient import utils as reference

from exporter.errors import ProtocolError
from exporter.triton.protocol_types import OutputTensor
from exporter.triton.tensors import (
    DATATYPES,
    FLOATS,
    NUMPY_DTYPES,
    array_dtype,
    decode,
    encode,
)

SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
BITS = arrays.arrays(np.uint32, st.integers(0, 50))


def tensor(datatype, shape, data, name="Y"):
    return OutputTensor(name, datatype, tuple(shape), data)


def fault_of(datatype, shape, data):
    with pytest.raises(ProtocolError) as caught:
        decode(tensor(datatype, shape, data))
    return str(caught.value)


@st.composite
def fixed_arrays(draw):
    datatype = draw(st.sampled_from(sorted(NUMPY_DTYPES)))
    return datatype, draw(arrays.arrays(NUMPY_DTYPES[datatype], SHAPES))


BYTES_ARRAYS = arrays.arrays(
    np.object_, SHAPES, elements=st.binary(max_size=20), fill=st.nothing()
)


def test_every_datatype_of_the_protocol_is_here():
    assert set(DATATYPES) == {
        *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64"),
        *("INT8", "INT16", "INT32", "INT64"),
        *("FP16", "FP32", "FP64", "BF16", "BYTES"),
    }
    assert {"FP16", "FP32", "FP64", "BF16"} == FLOATS


@given(fixed_arrays())
def test_a_fixed_size_tensor_survives_to_the_last_bit(drawn):
    datatype, array = drawn
    back = decode(tensor(datatype, array.shape, encode(array, datatype)))
    assert back.shape == array.shape
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()


@given(fixed_arrays())
def test_the_bytes_of_a_fixed_size_tensor_are_those_that_triton_clients_send(drawn):
    datatype, array = drawn
    assert reference.np_to_triton_dtype(array.dtype.newbyteorder("=")) == datatype
    assert encode(array, datatype) == array.tobytes()


@given(fixed_arrays())
def test_strides_and_byte_order_do_not_matter(drawn):
    datatype, array = drawn
    other = np.asfortranarray(array).astype(array.dtype.newbyteorder(">"))
    assert encode(other, datatype) == encode(array, datatype)
    if array.ndim:
        assert encode(array[::-1], datatype) == encode(array[::-1].copy(), datatype)


@given(BYTES_ARRAYS)
def test_texts_survive(array):
    back = decode(tensor("BYTES", array.shape, encode(array, "BYTES")))
    assert back.shape == array.shape
    assert back.tolist() == array.tolist()


@given(BYTES_ARRAYS)
def test_the_bytes_of_texts_are_those_that_triton_clients_send(array):
    encoded = encode(array, "BYTES")
    if array.size:
        assert encoded == reference.serialize_byte_tensor(array).item()
        theirs = reference.deserialize_bytes_tensor(encoded)
        assert theirs.tolist() == array.ravel().tolist()
    else:
        assert encoded == b""


@given(arrays.arrays(np.object_, st.integers(0, 5), elements=st.text(max_size=9)))
def test_text_is_sent_as_utf_8(array):
    back = decode(tensor("BYTES", array.shape, encode(array, "BYTES")))
    assert [item.decode() for item in back.tolist()] == array.tolist()


# BF16.
@given(BITS)
def test_bfloat16_is_rounded_as_another_implementation_rounds_it(bits):
    values = bits.view(np.float32)
    with np.errstate(invalid="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    ours = np.frombuffer(encode(values, "BF16"), "<u2")
    is_nan = np.isnan(values)
    assert ours[~is_nan].tolist() == expected[~is_nan].tolist()
    assert np.isnan(ours[is_nan].view(ml_dtypes.bfloat16)).all()
    assert ((ours >> 15) == (bits >> 31))[is_nan].all()


def test_every_bfloat16_there_is_survives():
    bits = np.arange(1 << 16, dtype="<u2")
    back = decode(tensor("BF16", bits.shape, bits.tobytes()))
    assert back.dtype == np.float32
    expected = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(back, expected, equal_nan=True)
    numbers = ~np.isnan(expected)
    again = np.frombuffer(encode(back, "BF16"), "<u2")
    assert again[numbers].tolist() == bits[numbers].tolist()


# Content that is not what it should be.


@pytest.mark.parametrize("datatype", sorted(NUMPY_DTYPES))
@pytest.mark.parametrize("change", [-1, 1])
def test_content_that_does_not_fill_the_shape_is_told(datatype, change):
    size = 6 * NUMPY_DTYPES[datatype].itemsize
    assert fault_of(datatype, (2, 3), bytes(size + change)) == (
        f"output 'Y' has {size + change} bytes; {datatype}[2, 3] needs {size}"
    )


def test_bfloat16_needs_two_bytes_a_value():
    assert fault_of("BF16", (3,), bytes(12)) == (
        "output 'Y' has 12 bytes; BF16[3] needs 6"
    )


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 5, 0)])
def test_empty_content_fills_an_empty_shape(datatype, shape):
    array = decode(tensor(datatype, shape, b""))
    assert array.shape == shape
    assert array.dtype == array_dtype(datatype)


@pytest.mark.parametrize("datatype", ["FP32", "BF16", "BYTES", "BOOL"])
@pytest.mark.parametrize(
    "shape",
    [(2**32, 2**32), (2**63, 2), (0, 10**30), (0, 2**62, 2**62), (1,) * 100 + (0,)],
)
def test_a_shape_no_tensor_can_have_is_a_fault(datatype, shape):
    assert fault_of(datatype, shape, b"").startswith("output 'Y' h")


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"\x01\0\0\0a", 1),
        (b"\x01\0\0\0a\x02\0\0\0b", 1),
        (b"\x01\0\0\0a\x01\0\0", 1),
        (b"\xff\xff\xff\xffa", 0),
        (b"\x01\0\0\0a\x01\0\0\0b\x01\0\0\0c", 2),
        (b"\x01\0\0\0a\x01\0\0\0b!", 2),
    ],
)
def test_texts_that_do_not_fill_the_shape_are_told(data, whole):
    assert fault_of("BYTES", (2,), data) == (
        f"output 'Y' holds {whole} whole BYTES elements in {len(data)} bytes; shape "
        "[2] needs 2"
    )


def test_an_unknown_datatype_is_told_with_those_there_are():
    assert fault_of("FP8", (1,), b"\0").startswith(
        "found datatype 'FP8'; want one of BOOL, UINT8"
    )
    with pytest.raises(ProtocolError):
        array_dtype("")
    assert len(fault_of("x" * 1_000_000, (1,), b"\0")) < 300


@given(
    st.sampled_from([*DATATYPES, "FP8", ""]),
    st.lists(st.integers(-1, 3) | st.integers(), max_size=4),
    st.binary(max_size=40),
)
def test_any_answer_is_an_array_of_its_shape_or_a_fault(datatype, shape, data):
    try:
        array = decode(tensor(datatype, shape, data))
    except ProtocolError:
        return
    assert array.shape == tuple(shape)
    assert array.dtype == array_dtype(datatype)
